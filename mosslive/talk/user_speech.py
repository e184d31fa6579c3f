"""The user's spoken turns: sound in, and what an ear makes of it told to the exchange.

Knows which ear the settings ask for, and what a conversation does not listen to. Knows nothing of
how a turn becomes rows, nor of replies.
"""

import asyncio
from concurrent.futures import Executor

from torch import Tensor

from mosslive.rows import Reply
from mosslive.talk.attention import Attention
from mosslive.talk.clock import Clock
from mosslive.talk.ear import Ear, Heard, ListeningEar, Sound, ToldEar
from mosslive.talk.events import SpeechStarted, SpeechStopped, TurnDetected
from mosslive.talk.exchange import Exchange
from mosslive.talk.settings import TalkSettings
from mosslive.talk.turns import Ended, Paused, Resumed, Started
from mosslive.talk.unread import Unread
from mosslive.talk.vad import SileroVad, VoiceActivity


class UserSpeech:
    def __init__(
        self,
        exchange: Exchange,
        settings: TalkSettings,
        vad: VoiceActivity | None,
        threads: Executor | None,
        clock: Clock,
        unread: Unread,
    ) -> None:
        """`vad`: None: Silero's, when it is needed. `threads`: see `Attention`."""
        self._exchange, self._settings, self._vad = exchange, settings, vad
        self._clock, self._unread = clock, unread
        self._attention = Attention(self, threads, clock)
        self._turn = 0  # the number of what is spoken

    def push(self, wave: Tensor, rate_hz: int) -> None:
        self._attention.push(wave, rate_hz)

    def catch_up(self) -> None:
        """All sound pushed so far is heard when this returns."""
        self._attention.catch_up()

    def commit(self, reply: Reply) -> bool:
        """The turn ends here. False: nobody was speaking."""
        heard = self._attention.commit()
        for item in heard:
            self._hear(item, reply)
        return bool(heard)

    def clear(self) -> None:
        """The turn that is being spoken never was."""
        self._attention.clear()
        if self._exchange.listening:
            self._exchange.drop_turn()

    def change(self, settings: TalkSettings) -> None:
        """For the next turn."""
        self._attention.catch_up()
        if settings.turns != self._settings.turns:
            self._attention.renew()
        self._settings = settings

    async def warm(self) -> None:
        if self._settings.turns and self._vad is None:
            self._vad = await asyncio.to_thread(SileroVad)

    def close(self) -> None:
        self._attention.close()

    # What `Attention` asks and tells.

    @property
    def in_turn(self) -> bool:
        return self._exchange.listening is not None

    @property
    def interrupting(self) -> bool:
        return self._exchange.answer is not None

    def make_ear(self, rate_hz: int) -> Ear:
        if self._settings.turns is None:
            return ToldEar(rate_hz)
        self._vad = self._vad or SileroVad()
        self._vad.reset()
        return ListeningEar(self._vad, self._settings.turns, rate_hz)

    def heard(self, heard: list[Heard]) -> None:
        settings = self._settings
        deaf = self.interrupting and not settings.barge_in and settings.auto_reply
        if deaf and not self.in_turn:
            self._attention.ignore()
            return
        for item in heard:
            self._hear(item, settings.reply)

    def could_not_listen(self, error: Exception) -> None:
        self._exchange.faults.tell(self._turn, "listening", error)
        if self.in_turn:
            self._exchange.drop_turn()

    def _hear(self, item: Heard, reply: Reply) -> None:
        exchange, attention, settings = self._exchange, self._attention, self._settings
        match item:
            case Started(first):
                turn = self._turn = exchange.next_turn()
                self._unread.put(SpeechStarted(turn, attention.position_s(first)))
                exchange.listen(turn, attention.rate_hz, settings.barge_in)
            case Sound(wave):
                exchange.feed(wave)
            case Paused(_, left) if settings.speculate and settings.auto_reply:
                exchange.pause(reply, self._clock.now() + left / attention.rate_hz)
            case Resumed():
                exchange.resume()
            case Ended(speech_end):
                self._unread.put(SpeechStopped(self._turn, attention.position_s(speech_end)))
                self._unread.put(TurnDetected(self._turn))
                answered = reply if settings.auto_reply else None
                exchange.end_turn(answered, attention.came_at(speech_end))
