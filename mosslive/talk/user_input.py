"""The user's sound → turns: packets go to a segmenter, and its signals go to the turn controller.

The VAD costs about a hundredth of a core per microphone, too much for an event loop that serves a
hundred of them. So a segmenter with a VAD works on a few shared threads, one piece of sound after
the other. Packets that arrive meanwhile are the next piece. Signals are handled on the event loop,
in order. If another process runs the VAD, its results come with the sound and no thread is needed.
The end-of-turn model runs on the same threads, if the end rule uses one.
A call that depends on the signals calls `catch_up` first, so for its caller sound is processed as
soon as it is pushed. Does not know how a turn becomes rows, nor how a reply is made.
Invariants: at most one thread uses the segmenter; at most `_BEHIND_S` of sound waits for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial

import torch
from torch import Tensor

from mosslive.config import refuse
from mosslive.rows import ReplyKind
from mosslive.talk.clock import Clock
from mosslive.talk.end_checks import CheckTimes, EndChecks
from mosslive.talk.events import EventQueue, SpeechStarted, SpeechStopped, TurnDetected
from mosslive.talk.segmenter import PushToTalkSegmenter, Segmenter, Sound, TurnItem, VadSegmenter
from mosslive.talk.settings import TalkSettings
from mosslive.talk.smart_turn import EndModel, SmartTurn
from mosslive.talk.turn_controller import TurnController
from mosslive.talk.turn_detection import Ended, Paused, Resumed, Started
from mosslive.talk.vad import SileroVad, Speech, VoiceActivity
from mosslive.talk.vad_frames import GivenSpeech

_REMEMBERED_S = 60  # of packet arrivals: longer than any silence that ends a turn
_BEHIND_S = 1.0  # if more than this waits, `push` processes it on the event loop


class UserInput:
    def __init__(
        self,
        controller: TurnController,
        settings: TalkSettings,
        vad: VoiceActivity | None,
        end_model: EndModel | None,
        threads: Executor | None,
        clock: Clock,
        events_out: EventQueue,
    ) -> None:
        """`vad`: None: Silero's, loaded when it is needed. `end_model`: None: Smart Turn, likewise.
        `threads`: where both run; None: in `push`, on the event loop."""
        self._controller, self._settings, self._vad = controller, settings, vad
        self._end_model = end_model
        self._threads, self._clock, self._events = threads, clock, events_out
        self._turn = 0  # the number of the spoken turn
        self._segmenter: Segmenter | None = None
        self._given: GivenSpeech | None = None  # the segmenter's probabilities; None: it has a VAD
        self._stream: int | None = None  # to which they belong
        self._outdated = False  # the segmenter uses settings that have changed
        self._arrivals = _Arrivals()
        self._waiting: list[Tensor] = []  # packets that no thread has yet
        self._piece = torch.zeros(0)  # the sound that a thread processes ...
        self._job: Future[list[TurnItem]] | None = None  # ... in this job

    def push(self, wave: Tensor, rate_hz: int, speech: Speech | None = None) -> None:
        """wave [n] float32. `speech`: None: the VAD runs here."""
        stream = speech.stream if speech else None
        if self._outdated or rate_hz != self._arrivals.rate_hz or stream != self._stream:
            self._change_segmenter(rate_hz, stream)
        if speech and self._given:
            self._given.give(speech.probabilities, speech.ends)
        segmenter = self._segmenter
        assert segmenter is not None, "every rate that is not refused has a segmenter"
        self._arrivals.add(wave.shape[0], self._clock.now())
        self._waiting.append(wave)
        if self._threads is None or not segmenter.slow or self._too_far_behind:
            self.catch_up()
        elif self._job is None:
            self._submit(segmenter, self._threads)

    def catch_up(self) -> None:
        """Processes all sound pushed so far, and handles its signals, before it returns."""
        if (job := self._job) is not None:
            self._job = None
            if job.cancel():
                self._waiting.insert(0, self._piece)
            else:
                self._handle(job.result)  # waits for the rest of one piece
        while self._segmenter and self._has_more:
            self._handle(partial(self._segmenter.push, self._next_piece(), self._replying))

    def commit(self, reply: ReplyKind) -> bool:
        """Ends the user's turn here. False: there is none."""
        self.catch_up()
        items = self._segmenter.commit() if self._segmenter else []
        for item in items:
            self._dispatch(item, reply)
        return bool(items)

    def clear(self) -> None:
        """Drops the turn in progress and all sound pushed so far."""
        self.catch_up()
        self._ignore()
        if self._in_turn:
            self._controller.drop_turn()

    def change(self, settings: TalkSettings) -> None:
        """For the next turn; the turn in progress keeps its segmenter."""
        self.catch_up()
        self._outdated |= settings.turns != self._settings.turns
        self._settings = settings

    async def warm(self) -> None:
        if self._settings.turns and self._vad is None:
            self._vad = await asyncio.to_thread(SileroVad)
        if self._settings.turns and CheckTimes.of(self._settings.turns) and not self._end_model:
            self._end_model = await asyncio.to_thread(SmartTurn)

    def close(self) -> None:
        self._job, self._segmenter = None, None
        self._waiting.clear()

    # One piece of sound after the other.

    @property
    def _has_more(self) -> bool:
        return bool(self._waiting) or (self._segmenter is not None and self._segmenter.behind)

    @property
    def _too_far_behind(self) -> bool:
        return sum(map(len, self._waiting)) > _BEHIND_S * self._arrivals.rate_hz

    def _next_piece(self) -> Tensor:
        pieces, self._waiting = self._waiting, []
        if len(pieces) == 1:  # most packets of a front
            return pieces[0]
        return torch.cat(pieces) if pieces else torch.zeros(0)

    def _submit(self, segmenter: Segmenter, threads: Executor) -> None:
        self._piece = self._next_piece()
        loop = asyncio.get_running_loop()
        job = self._job = threads.submit(segmenter.push, self._piece, self._replying)

        def done(job: "Future[list[TurnItem]]") -> None:
            with suppress(RuntimeError):  # the loop is closed, and the conversation with it
                loop.call_soon_threadsafe(self._finished, job, threads)

        job.add_done_callback(done)

    def _finished(self, job: "Future[list[TurnItem]]", threads: Executor) -> None:
        if job is not self._job:
            return  # `catch_up` has handled it
        self._job = None
        self._handle(job.result)
        if self._segmenter and self._has_more:
            self._submit(self._segmenter, threads)

    def _handle(self, result: Callable[[], list[TurnItem]]) -> None:
        try:
            items = result()
        except Exception as error:  # some sound is lost; the next packet gets a new segmenter
            self._replace_segmenter(None, 0)
            self._waiting.clear()
            self._events.fault(self._turn, "listening", error)
            if self._in_turn:
                self._controller.drop_turn()
            return
        settings = self._settings
        deaf = self._replying and not settings.barge_in and settings.auto_reply
        if deaf and not self._in_turn:
            self._ignore()
            return
        for item in items:
            self._dispatch(item, settings.reply)

    # Signals. Their positions are samples of the current segmenter's sound.

    @property
    def _in_turn(self) -> bool:
        return self._controller.listening is not None

    @property
    def _replying(self) -> bool:
        """Whether speech now would interrupt a reply."""
        return self._controller.reply is not None

    def _ignore(self) -> None:
        """The sound of the signals so far belongs to no turn."""
        if self._segmenter:
            self._segmenter.clear()

    def _dispatch(self, item: TurnItem, reply: ReplyKind) -> None:
        controller, arrivals, settings = self._controller, self._arrivals, self._settings
        match item:
            case Started(first):
                turn = self._turn = controller.next_turn()
                self._events.put(SpeechStarted(turn, arrivals.position_s(first)))
                controller.listen(turn, arrivals.rate_hz, settings.barge_in)
            case Sound(wave):
                controller.feed(wave)
            case Paused(_, left) if settings.speculate and settings.auto_reply:
                controller.pause(reply, self._clock.now() + left / arrivals.rate_hz)
            case Resumed():
                controller.resume()
            case Ended(speech_end):
                self._events.put(SpeechStopped(self._turn, arrivals.position_s(speech_end)))
                self._events.put(TurnDetected(self._turn))
                arrival = arrivals.arrival_of(speech_end)
                arrival = self._clock.now() if arrival is None else arrival
                controller.end_turn(reply if settings.auto_reply else None, arrival)

    # The segmenter.

    def _change_segmenter(self, rate_hz: int, stream: int | None) -> None:
        self.catch_up()
        if self._given and stream is None and self._in_turn:
            self.clear()  # no more probabilities would come for this turn
        if self._segmenter and self._in_turn:  # one segmenter processes a turn to its end
            if rate_hz != self._arrivals.rate_hz:
                allowed = f"{self._arrivals.rate_hz} until the turn ends"
                raise refuse("sample_rate", rate_hz, allowed)
            return
        self._stream, self._given = stream, None if stream is None else GivenSpeech(rate_hz)
        self._replace_segmenter(self._make_segmenter(rate_hz), rate_hz)
        self._outdated = False

    def _make_segmenter(self, rate_hz: int) -> Segmenter:
        if self._settings.turns is None:
            return PushToTalkSegmenter(rate_hz)
        if self._given:
            return VadSegmenter(self._given, self._settings.turns, rate_hz)
        self._vad = self._vad or SileroVad()
        self._vad.reset()
        checks = None
        if times := CheckTimes.of(self._settings.turns):
            self._end_model = self._end_model or SmartTurn()
            checks = EndChecks(self._end_model, times, self._threads)
        return VadSegmenter(self._vad, self._settings.turns, rate_hz, checks)

    def _replace_segmenter(self, segmenter: Segmenter | None, rate_hz: int) -> None:
        self._segmenter = segmenter
        self._arrivals.restart(rate_hz)


class _Arrivals:
    """When packets arrived, and where the current segmenter's samples are in all the sound."""

    def __init__(self) -> None:
        self.rate_hz = 0  # of the current segmenter
        self._before_s = 0.0  # sound of earlier segmenters
        self._packets: deque[tuple[int, float]] = deque()  # (samples in all, moment of arrival)

    def restart(self, rate_hz: int) -> None:
        """Sample 0 of a new segmenter follows."""
        if self._packets:
            self._before_s += self._packets[-1][0] / self.rate_hz
        self._packets.clear()
        self.rate_hz = rate_hz

    def add(self, samples: int, now: float) -> None:
        total = (self._packets[-1][0] if self._packets else 0) + samples
        self._packets.append((total, now))
        while self._packets[0][0] < total - _REMEMBERED_S * self.rate_hz:
            self._packets.popleft()

    def position_s(self, sample: int) -> float:
        """In all sound of the user."""
        return self._before_s + sample / self.rate_hz

    def arrival_of(self, sample: int) -> float | None:
        """When the packet with this sample arrived; None: it has not."""
        return next((moment for total, moment in self._packets if total >= sample), None)
