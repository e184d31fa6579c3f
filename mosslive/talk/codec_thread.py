"""The one place where conversations use the codec: a thread that owns it, and a queue in front.

The hearing and speaking of all conversations pass through here, the most urgent first, and replies
are rendered together; so the event loop never waits for a network. Jobs of one owner do not
overtake each other, because it awaits each before the next. Nobody waits in vain: what fails is
told to whoever asked, and the end of the thread to all. Knows nothing of turns or rows.
"""

import asyncio
import heapq
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec.conformer import LOOK_AHEAD
from mosslive.codec.encoder_stream import HeardTurn
from mosslive.codec.flow_stream import TailRule
from mosslive.codec.voice import Voice
from mosslive.errors import MossliveError

Value = TypeVar("Value")
Samples = NDArray[np.float32]

NOW = float("-inf")  # due before anything that has a time


class HearingSource(Protocol):
    def push(self, pcm: Tensor) -> list[int]: ...
    def finish(self) -> HeardTurn: ...


class SpeakingBatch(Protocol):
    """What is used of `mosslive.codec.decoder_batch.DecoderBatch`; replies are its own objects."""

    @property
    def ready(self) -> list[Any]: ...
    def add(self, voice: Voice, seed: int = 0) -> Any: ...
    def push(self, reply: Any, codes: Sequence[int]) -> None: ...
    def step(self) -> dict[Any, Samples]: ...
    def finish(self, reply: Any) -> Samples: ...
    def cancel(self, reply: Any) -> None: ...


class SpeechCodec(Protocol):
    """What is used of `mosslive.codec.Codec`."""

    sample_rate: int
    device: torch.device

    def encode(self, pcm: Tensor, sample_rate: int) -> list[int]: ...
    def encoder_stream(self, sample_rate: int) -> HearingSource: ...
    def decoder_batch(self, chunk: int = 5, *, tail: TailRule = "reference") -> SpeakingBatch: ...


@dataclass(frozen=True)
class Done(Generic[Value]):
    value: Value
    cost_s: float  # on the codec's thread, waiting not counted


@dataclass(order=True)
class _Job:
    due: float
    number: int
    work: Callable[[], Any] = field(compare=False)
    answer: "asyncio.Future[Any] | None" = field(compare=False)
    settles: bool = field(default=True, compare=False)  # the answer is what `work` returns


@dataclass(eq=False)
class _Rendering:
    """Codes given to a batch that have not all come back as sound."""

    batch: SpeakingBatch
    due: float
    answer: "asyncio.Future[Any]"
    pieces: list[Samples] = field(default_factory=list)
    cost_s: float = 0.0


class CodecThread:
    def __init__(
        self,
        codec: SpeechCodec,
        *,
        tail: TailRule = "reference",
        clock: Callable[[], float] = time.monotonic,
        threaded: bool = True,
    ) -> None:
        """`tail`: how the end of a reply is rendered; see `Codec.decoder_stream`. `threaded=False`:
        no thread; whoever made it calls `step`."""
        self.codec = codec
        self.sample_rate = codec.sample_rate
        self.open_turns = self.open_replies = 0  # that hold memory of the codec
        self._clock, self._tail = clock, tail
        self._jobs: list[_Job] = []
        self._numbers = count()
        self._news = threading.Condition()
        self._closing = False
        self._ended = ""  # why, if it did by itself
        self._batches: dict[int, SpeakingBatch] = {}  # by chunk
        self._rendering: dict[Any, _Rendering] = {}  # by the batch's reply
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="mosslive-codec", daemon=True)
            self._thread.start()

    # What conversations ask for.

    def do(self, work: Callable[[], Value], due: float = NOW) -> "asyncio.Future[Done[Value]]":
        """Runs `work` on the thread; of the jobs that wait, the earliest `due` first."""
        answer: asyncio.Future[Done[Value]] = asyncio.get_running_loop().create_future()
        self._put(work, due, answer)
        return answer

    def tell(self, work: Callable[[], None]) -> None:
        """Runs `work` soon; nobody waits for it."""
        self._put(work, NOW, None)

    def render(
        self, reply: Callable[[], tuple[SpeakingBatch, Any]], codes: Sequence[int], due: float
    ) -> "asyncio.Future[Done[Samples]]":
        """Codes of a reply → all the sound they settle, in steps shared with other replies."""
        answer: asyncio.Future[Done[Samples]] = asyncio.get_running_loop().create_future()

        def begin() -> None:
            batch, member = reply()
            batch.push(member, codes)
            self._rendering[member] = _Rendering(batch, due, answer)

        self._put(begin, NOW, answer, settles=False)
        return answer

    async def encode(self, wave: Tensor, rate_hz: int) -> list[int]:
        """A whole turn at once."""
        return (await self.do(lambda: self.codec.encode(wave, rate_hz))).value

    async def warm(self, voice: Voice, chunk: int, replies: int = 1) -> None:
        """Loads the networks and prepares the voice, and turns and replies of so many conversations
        at once, before anybody waits for them."""

        def work() -> None:
            rate = self.sample_rate
            for hearing in [self.codec.encoder_stream(rate) for _ in range(replies)]:
                hearing.push(torch.zeros(rate // 5))
                hearing.finish()
            batch = self.batch(chunk)
            for size in range(1, replies + 1):
                members = [batch.add(voice) for _ in range(size)]
                for member in members:  # the first chunk, and one that follows another
                    batch.push(member, [0] * (2 * chunk + LOOK_AHEAD))
                while batch.ready:
                    batch.step()
                batch.finish(members[0])
                for member in members:
                    batch.cancel(member)

        await self.do(work)

    async def close(self) -> None:
        """After the jobs that wait."""
        with self._news:
            self._closing = True
            self._news.notify()
        if self._thread:
            await asyncio.to_thread(self._thread.join)

    # On the thread.

    def batch(self, chunk: int) -> SpeakingBatch:
        if chunk not in self._batches:
            self._batches[chunk] = self.codec.decoder_batch(chunk, tail=self._tail)
        return self._batches[chunk]

    def step(self) -> bool:
        """The most urgent thing: a job, or one step of all replies that can be rendered. False:
        there is nothing to do."""
        dry = min((one.due for one in self._rendering.values()), default=float("inf"))
        job = None
        with self._news:
            if self._jobs and self._jobs[0].due <= dry:
                job = heapq.heappop(self._jobs)
        if job:
            self._do(job)
            return True
        batches = {id(one.batch): one.batch for one in self._rendering.values()}
        for batch in batches.values():
            self._render_step(batch)
        return bool(batches)

    def _do(self, job: _Job) -> None:
        if job.answer is not None and job.answer.cancelled():
            return
        began = self._clock()
        try:
            value = job.work()
        except Exception as error:  # answered: it belongs to whoever asked
            if job.answer is not None:
                self._tell(job.answer, error)
            return
        except BaseException:  # the end of the thread, which `_give_up` tells
            with self._news:
                heapq.heappush(self._jobs, job)
            raise
        if job.answer is not None and job.settles:
            self._tell(job.answer, Done(value, self._clock() - began))

    def _render_step(self, batch: SpeakingBatch) -> None:
        mine = {member: one for member, one in self._rendering.items() if one.batch is batch}
        began = self._clock()
        try:
            sound = batch.step()
            still = set(map(id, batch.ready))
        except Exception as error:  # whose fault it was cannot be told: all of them end
            for member, one in mine.items():
                del self._rendering[member]
                self._tell(one.answer, error)
                batch.cancel(member)
            return
        cost_s = self._clock() - began
        for member, one in mine.items():
            if member in sound:
                one.pieces.append(sound[member])
                one.cost_s += cost_s
            if id(member) not in still:
                del self._rendering[member]
                self._tell(one.answer, Done(_joined(one.pieces), one.cost_s))

    def forget(self, member: Any) -> None:
        """A reply that is closed gets no more sound."""
        self._rendering.pop(member, None)

    def _run(self) -> None:
        try:
            with self._on_device():
                while self._await_work():
                    self.step()
        except BaseException as error:  # told to all who wait, and to all who come
            self._give_up(error)

    def _await_work(self) -> bool:
        with self._news:
            while not self._jobs and not self._rendering:
                if self._closing:
                    return False
                self._news.wait()
        return True

    def _give_up(self, error: BaseException) -> None:
        with self._news:
            self._closing = True
            self._ended = f"the codec's thread has ended: {type(error).__name__}: {error}"
            jobs, self._jobs = self._jobs, []
        waiting = [job.answer for job in jobs if job.answer is not None]
        waiting += [one.answer for one in self._rendering.values()]
        self._rendering.clear()
        for answer in waiting:
            self._tell(answer, MossliveError(self._ended))

    def _on_device(self) -> AbstractContextManager[Any]:
        """On a GPU a stream of its own, which goes first: the language model is never far behind
        its listeners, the codec stands between a code and the ear."""
        if self.codec.device.type != "cuda":
            return nullcontext()
        torch.cuda.synchronize(self.codec.device)  # what was loaded elsewhere is there
        own = torch.cuda.Stream(self.codec.device, priority=-1)  # type: ignore[no-untyped-call]
        return torch.cuda.stream(own)

    def _put(
        self,
        work: Callable[[], Any],
        due: float,
        answer: "asyncio.Future[Any] | None",
        settles: bool = True,
    ) -> None:
        with self._news:
            if self._closing and answer is not None:
                raise MossliveError(self._ended or "the codec's thread is closed")
            if self._ended:
                return  # what nobody waits for, nobody misses
            heapq.heappush(self._jobs, _Job(due, next(self._numbers), work, answer, settles))
            self._news.notify()

    def _tell(self, answer: "asyncio.Future[Any]", outcome: Done[Any] | Exception) -> None:
        def settle() -> None:
            if answer.done():
                return
            if isinstance(outcome, Exception):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        try:
            answer.get_loop().call_soon_threadsafe(settle)
        except RuntimeError:  # that loop is closed, so nobody waits there any more
            return


def _joined(pieces: list[Samples]) -> Samples:
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.float32)
