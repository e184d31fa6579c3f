"""A conversation for tests: nano models, a clock that the test moves, no threads.

`settle` runs the engine, the codec and all tasks until none has work; `wait` moves the clock and
stops at every moment that a task waits for. So the order of steps is the same in every run.
"""

import asyncio
import gc
import heapq
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from itertools import count
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mosslive import Engine, LanguageModel, Sampling
from mosslive.cache import PagePool, PageTable
from mosslive.codec import Voice
from mosslive.engine.request import Request
from mosslive.engine.settings import EngineSettings
from mosslive.engine.stepper import StepResult
from mosslive.rows import Row
from mosslive.talk import CodecService, FixedSilence, Talk, TalkSettings, TurnSettings
from mosslive.talk.events import AudioChunk, Event
from mosslive.talk.speech_codec import SpeechCodec
from mosslive.talk.vad import FRAME_SAMPLES, VAD_HZ
from tests.codec.conftest import speech
from tests.engine.serving import ROOMY, Served

CODES = 20  # of a reply in `RIG`: four chunks
RIG = TalkSettings(
    sampling=Sampling(seed=5, max_new=CODES, min_new=CODES + 1, ignored_audio="pad"),
    system="Hi.",
    turns=TurnSettings(end=FixedSilence()),
)

Kind = TypeVar("Kind")
Wave = NDArray[np.float32]


def heap_bytes() -> int:
    """The size of all objects that the garbage collector knows. Objects of other packages without
    a size (lazy modules, compiled code) count 0: our code does not make them grow."""
    gc.collect()
    return sum(sys.getsizeof(each, 0) for each in gc.get_objects())


class FakeClock:
    def __init__(self) -> None:
        self.time = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def now(self) -> float:
        return self.time

    async def sleep_until(self, moment: float) -> None:
        if moment <= self.time:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (moment, next(self._numbers), woken))
        await woken

    def next_moment(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():  # cancelled
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def move_to(self, moment: float) -> None:
        self.time = max(self.time, moment)
        while (due := self.next_moment()) is not None and due <= self.time:
            heapq.heappop(self._sleepers)[2].set_result(None)


class LoudVad:
    """Every loud sound is speech."""

    def __init__(self) -> None:
        self.frames = 0

    def probability(self, frame: Wave) -> float:
        self.frames += 1
        return float(np.abs(frame).max() > 0.02)

    def reset(self) -> None:
        pass


class Later(Executor):
    """An executor with one thread, which works only when the test calls `step`."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        job: Future[Any] = Future()
        self.jobs.append((job, partial(work, *args, **kwargs)))
        return job

    def step(self) -> bool:
        """One job. False: there is none."""
        while self.jobs:
            job, work = self.jobs.popleft()
            if not job.set_running_or_notify_cancel():
                continue
            try:
                job.set_result(work())
            except Exception as error:
                job.set_exception(error)
            return True
        return False


class Script:
    """A stepper that computes nothing: every reply is `ids`, (text, audio), the last repeated."""

    most_requests, most_rows = 64, 512

    def __init__(self, lm: LanguageModel, ids: Sequence[Row]) -> None:
        self.config, self.ids = lm.config, ids
        self.pool = PagePool(2000, 16)

    def prefill(self, jobs: Sequence[tuple[PageTable, Sequence[Row]]]) -> None:
        for table, rows in jobs:
            table.append(rows)

    def decode(self, requests: Sequence[Request]) -> list[StepResult]:
        made: list[StepResult] = []
        for request in requests:
            request.adopt()
            request.table.append(request.pending)
            request.pending.clear()
            request.begin_step()
            made.append(request.accept(*self.ids[min(request.row_number, len(self.ids)) - 1]))
        return made

    def release(self, request: Request) -> None:
        pass


class Rig:
    def __init__(
        self,
        lm: LanguageModel,
        codec: SpeechCodec,
        voice: Voice,
        settings: TalkSettings = RIG,
        *,
        engine_settings: EngineSettings = ROOMY,
        engine: Engine | None = None,
        clock: FakeClock | None = None,
        threads: Later | None = None,
        reads: bool = True,
        **options: Any,
    ) -> None:
        """`engine`: one without a thread; default: the real one on the weights of `lm`. `threads`:
        where the VAD runs; default: in `push_audio`. `reads`: whether events are read."""
        self.clock = clock or FakeClock()
        self.served = Served(lm, engine_settings)
        self.engine = engine or self.served.engine
        self.codec = CodecService(codec, clock=self.clock.now, threaded=False)
        self.threads = threads
        self.hold_engine = False
        self.eager = False  # the engine steps until it has no work
        given: dict[str, Any] = {"vad": LoudVad(), "clock": self.clock, "threads": threads}
        self.talk = Talk(self.engine, self.codec, voice, settings, **given | options)
        self.events: list[Event] = []
        self.reader: asyncio.Task[None] | None = None
        if reads:
            self.read()

    def read(self) -> None:
        """Reads events from now on."""
        self.reader = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        async for event in self.talk.events():
            self.events.append(event)

    async def one_step(self) -> bool:
        """One step of the engine, one of the codec and one of the VAD's thread, then the tasks that
        they wake."""
        moved = not self.hold_engine and self.engine.loop.step()
        moved |= self.threads is not None and self.threads.step()
        while self.eager and self.engine.loop.step():
            pass
        moved |= self.codec.step()
        for _ in range(12):
            await asyncio.sleep(0)
        return moved

    async def settle(self) -> None:
        quiet = 0
        while quiet < 2:
            quiet = 0 if await self.one_step() else quiet + 1

    async def wait(self, seconds: float) -> None:
        end = self.clock.time + seconds
        await self.settle()
        while (moment := self.clock.next_moment()) is not None and moment <= end:
            self.clock.move_to(moment)
            await self.settle()
        self.clock.move_to(end)
        await self.settle()

    async def elapse(self, seconds: float) -> None:
        """Time passes while engine and codec do nothing."""
        self.clock.move_to(self.clock.time + seconds)
        for _ in range(12):
            await asyncio.sleep(0)

    async def say(self, wave: Wave, rate_hz: int, packet: int | None = None) -> None:
        """Pushes sound through the microphone in real time."""
        packet = packet or rate_hz // 20
        for first in range(0, len(wave), packet):
            piece = wave[first : first + packet]
            await self.wait(len(piece) / rate_hz)
            self.talk.push_audio(piece, rate_hz)
        await self.settle()

    async def until(self, done: Callable[[], bool], most_s: float = 60) -> None:
        """Moves the clock until a condition holds."""
        end = self.clock.time + most_s
        await self.settle()
        while not done():
            assert self.clock.time < end, f"the condition does not become true; {self.events[-3:]}"
            moment = self.clock.next_moment()
            self.clock.move_to(self.clock.time + 0.05 if moment is None else moment)
            await self.settle()

    async def close(self) -> None:
        closing = asyncio.get_running_loop().create_task(self.talk.close())
        while not closing.done():
            await self.settle()
        if self.reader is None:
            self.read()
        while self.reader and not self.reader.done():
            await self.settle()
        await self.settle()

    # Results.

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]

    def sound(self, turn: int | None = None) -> Wave:
        chunks = [e for e in self.of(AudioChunk) if turn in (None, e.turn)]
        return np.concatenate([c.pcm for c in chunks]) if chunks else np.zeros(0, np.float32)

    @property
    def rows(self) -> list[Row]:
        return self.talk._controller.dialogue.conversation.rows

    def assert_clean(self) -> None:
        """After `close` nothing is held."""
        assert self.served.all_free()
        assert self.codec.open_replies == self.codec.open_turns == 0
        assert self.talk._controller.queue.tasks == 0


def frames(*parts: tuple[float, bool]) -> Wave:
    """Sound and silence at 16 kHz in whole frames of the VAD: (seconds, loud)."""
    pieces = []
    for seconds, loud in parts:
        count = round(seconds * VAD_HZ / FRAME_SAMPLES) * FRAME_SAMPLES
        pieces.append(speech(count / VAD_HZ, VAD_HZ) if loud else np.zeros(count, np.float32))
    return np.concatenate(pieces)


def run(test: Awaitable[None]) -> None:
    async def main() -> None:
        await test

    asyncio.run(main())
