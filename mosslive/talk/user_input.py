"""The user's spoken turns: sound in, and what an ear makes of it told to the exchange.

Knows which ear the settings ask for, and what a conversation does not listen to. Knows nothing of
how a turn becomes rows, nor of replies.
"""

import asyncio
from concurrent.futures import Executor

from torch import Tensor

from mosslive.rows import ReplyKind
from mosslive.talk.clock import Clock
from mosslive.talk.event_queue import EventQueue
from mosslive.talk.events import SpeechStarted, SpeechStopped, TurnDetected
from mosslive.talk.segmenter import PushToTalkSegmenter, Segmenter, Sound, TurnItem, VadSegmenter
from mosslive.talk.settings import TalkSettings
from mosslive.talk.turn_controller import TurnController
from mosslive.talk.turn_detection import Ended, Paused, Resumed, Started
from mosslive.talk.vad import SileroVad, VoiceActivity
from mosslive.talk.vad_worker import VadWorker


class UserInput:
    def __init__(
        self,
        controller: TurnController,
        settings: TalkSettings,
        vad: VoiceActivity | None,
        threads: Executor | None,
        clock: Clock,
        events_out: EventQueue,
    ) -> None:
        """`vad`: None: Silero's, when it is needed. `threads`: see `VadWorker`."""
        self._controller, self._settings, self._vad = controller, settings, vad
        self._clock, self._events = clock, events_out
        self._vad_worker = VadWorker(self, threads, clock)
        self._turn = 0  # the number of what is spoken

    def push(self, wave: Tensor, rate_hz: int) -> None:
        self._vad_worker.push(wave, rate_hz)

    def catch_up(self) -> None:
        """All sound pushed so far is heard when this returns."""
        self._vad_worker.catch_up()

    def commit(self, reply: ReplyKind) -> bool:
        """The turn ends here. False: nobody was speaking."""
        heard = self._vad_worker.commit()
        for item in heard:
            self._hear(item, reply)
        return bool(heard)

    def clear(self) -> None:
        """The turn that is being spoken never was."""
        self._vad_worker.clear()
        if self._controller.listening:
            self._controller.drop_turn()

    def change(self, settings: TalkSettings) -> None:
        """For the next turn."""
        self._vad_worker.catch_up()
        if settings.turns != self._settings.turns:
            self._vad_worker.renew()
        self._settings = settings

    async def warm(self) -> None:
        if self._settings.turns and self._vad is None:
            self._vad = await asyncio.to_thread(SileroVad)

    def close(self) -> None:
        self._vad_worker.close()

    # What `VadWorker` asks and tells.

    @property
    def in_turn(self) -> bool:
        return self._controller.listening is not None

    @property
    def interrupting(self) -> bool:
        return self._controller.answer is not None

    def make_segmenter(self, rate_hz: int) -> Segmenter:
        if self._settings.turns is None:
            return PushToTalkSegmenter(rate_hz)
        self._vad = self._vad or SileroVad()
        self._vad.reset()
        return VadSegmenter(self._vad, self._settings.turns, rate_hz)

    def heard(self, heard: list[TurnItem]) -> None:
        settings = self._settings
        deaf = self.interrupting and not settings.barge_in and settings.auto_reply
        if deaf and not self.in_turn:
            self._vad_worker.ignore()
            return
        for item in heard:
            self._hear(item, settings.reply)

    def listening_failed(self, error: Exception) -> None:
        self._controller.faults.tell(self._turn, "listening", error)
        if self.in_turn:
            self._controller.drop_turn()

    def _hear(self, item: TurnItem, reply: ReplyKind) -> None:
        controller, vad_worker, settings = self._controller, self._vad_worker, self._settings
        match item:
            case Started(first):
                turn = self._turn = controller.next_turn()
                self._events.put(SpeechStarted(turn, vad_worker.position_s(first)))
                controller.listen(turn, vad_worker.rate_hz, settings.barge_in)
            case Sound(wave):
                controller.feed(wave)
            case Paused(_, left) if settings.speculate and settings.auto_reply:
                controller.pause(reply, self._clock.now() + left / vad_worker.rate_hz)
            case Resumed():
                controller.resume()
            case Ended(speech_end):
                self._events.put(SpeechStopped(self._turn, vad_worker.position_s(speech_end)))
                self._events.put(TurnDetected(self._turn))
                answered = reply if settings.auto_reply else None
                controller.end_turn(answered, vad_worker.arrival_of(speech_end))
