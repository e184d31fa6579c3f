"""The codec's thread: it owns the codec and runs the encoding and decoding of all conversations.

Work with the earliest deadline goes first, and replies are rendered in common steps, so event loops
never wait for a network. Jobs of one caller keep their order, because it awaits each before the
next. Knows nothing of turns or rows.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.flow_stream import TailRule
from mosslive.codec.voice import Voice
from mosslive.engine.device_priority import DevicePriority
from mosslive.engine.health import Health
from mosslive.engine.step_costs import StepCosts
from mosslive.errors import MossliveError
from mosslive.talk.job_queue import NOW, Done, JobQueue, Result, Value, settle
from mosslive.talk.production import Production
from mosslive.talk.speech_codec import DecoderBatchLike, Samples, SpeechCodec
from mosslive.talk.warmup import hearing_pieces, speaking_pieces

# When a turn that is encoded whole, and work that prepares for later, is due: after sound that a
# listener waits for.
_CAN_WAIT_S = 0.5
_GUESS_MS = (10.0, 1.0)  # of a step, and for each turn or reply in it, before it is measured
# Other users of the device wait for work that is due within this time: longer than any step takes.
URGENT_S = 0.1


class CodecWorker:
    """Deadlines are moments of `clock`, which all conversations here share."""

    def __init__(
        self,
        codec: SpeechCodec,
        *,
        clock: Callable[[], float] = time.monotonic,
        threaded: bool = True,
        priority: DevicePriority | None = None,
    ) -> None:
        """`threaded=False`: no thread; the caller calls `step`. `priority`: of the users of the
        same device, usually the engine's."""
        self.codec = codec
        self.sample_rate = codec.sample_rate
        self.open_turns = self.open_replies = 0  # that hold memory of the codec
        self._clock = clock
        self.production = Production()  # of the sound of all conversations
        self.health = Health("the codec's thread", clock)
        self._jobs = JobQueue(self.health)
        # By turns in a step, and by replies in a step with and without a first chunk.
        self.costs = {kind: StepCosts(_GUESS_MS) for kind in ("encode", "render_first", "render")}
        self._rendering = RenderBatcher(clock, self.health, self.costs)
        self._batches: dict[tuple[int, TailRule], DecoderBatchLike] = {}
        self._device_user = (priority or DevicePriority()).join(self._jobs.notify)
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="mosslive-codec", daemon=True)
            self._thread.start()

    # On an event loop.

    def do(
        self, work: Callable[[], Value], due: float = NOW, kind: str = ""
    ) -> "asyncio.Future[Done[Value]]":
        """Runs `work` on the thread. `kind`: of work, for the health of the thread; empty: not
        counted."""
        result: asyncio.Future[Done[Value]] = asyncio.get_running_loop().create_future()
        self._jobs.put(work, due, result, kind=kind)
        return result

    def post(self, work: Callable[[], None]) -> None:
        """Runs `work` on the thread soon, without a result."""
        self._jobs.put(work, NOW, None)

    def render(
        self,
        reply: Callable[[], tuple[DecoderBatchLike, Any]],
        codes: Sequence[int],
        due: float,
        begin: float = NOW,
    ) -> "asyncio.Future[Done[Samples]]":
        """Codes of a reply → all the sound they settle, in steps shared with other replies.
        `begin`: the codes join no step that is due before this moment."""
        result: asyncio.Future[Done[Samples]] = asyncio.get_running_loop().create_future()

        def work() -> None:
            batch, member = reply()
            self._rendering.begin(batch, member, codes, due, result)

        self._jobs.put(work, begin, result, settles=False, kind="opening replies")
        return result

    async def encode(self, wave: Tensor, rate_hz: int, due: float | None = None) -> list[int]:
        """Encodes a whole turn at once. Default deadline: soon, but after urgent sound."""
        due = self._clock() + _CAN_WAIT_S if due is None else due
        encoded = self.do(lambda: self.codec.encode(wave, rate_hz), due, "encoding")
        return (await encoded).value

    async def warm(
        self, voice: Voice, chunk: int, replies: int = 1, tail: TailRule = "cached"
    ) -> None:
        """Does once, ahead of time, the one-time work of up to `replies` conversations: loads the
        networks, prepares the voice, and on a GPU compiles and records

        - the encoding of so many turns at once, and steps of 1 to 16 codes, as at the end of a
          question, also far into a turn;
        - first and further chunks of 1, 2, 4 ... replies together, as many as fit into the pool;
        - ends of replies with any number of codes left.

        Other voices are prepared at their first use. On a CPU one turn and two replies, one after
        the other, are enough. Runs in short pieces, after the sound of current conversations."""
        recorded = self.codec.device.type == "cuda"

        async def do(piece: Callable[[], Value]) -> Value:
            return (await self.do(piece, self._clock() + _CAN_WAIT_S)).value

        for piece in hearing_pieces(self.codec, replies, recorded):
            await do(piece)
        # A batch of its own: steps of the shared batch would return the sound of current replies.
        batch = await do(lambda: self.codec.decoder_batch(chunk, tail=tail))
        for piece in speaking_pieces(batch, voice, chunk, replies, recorded):
            try:
                await do(piece)
            except PoolFull:
                if not self.open_replies:  # else current replies hold the pages
                    raise

    async def close(self) -> None:
        """Ends the thread after the waiting jobs."""
        self._jobs.close()
        if self._thread:
            await asyncio.to_thread(self._thread.join)
        self._device_user.leave()

    # On the thread.

    def batch(self, chunk: int, tail: TailRule = "cached") -> DecoderBatchLike:
        """The batch of all replies with this chunk and tail."""
        if (chunk, tail) not in self._batches:
            self._batches[chunk, tail] = self.codec.decoder_batch(chunk, tail=tail)
        return self._batches[chunk, tail]

    def forget(self, member: Any) -> None:
        """A reply was closed: it gets no more sound."""
        self._rendering.forget(member)

    def now(self) -> float:
        return self._clock()

    def encoded(self, codes: int, began: float) -> None:
        """One turn was encoded by so many codes since `began`."""
        now = self._clock()
        if codes:
            self.costs["encode"].observe(1, (now - began) / codes, now)

    def step(self) -> bool:
        """Runs the most urgent work: a job, or one step of all replies that can be rendered. False:
        there is no work."""
        if job := self._jobs.take(self._rendering.due):
            self._jobs.run(job, self._clock)
            return True
        if not self._rendering:
            return False
        self._rendering.step()
        return True

    def _run(self) -> None:
        try:
            with self._on_device():
                while self._jobs.wait(lambda: bool(self._rendering)):
                    self._device_user.yield_device(self._is_urgent, self._pause)
                    self.step()
                    self._device_user.set_urgent(bool(self._is_urgent()))
        except BaseException as error:  # raised where jobs are awaited, now and later
            self._rendering.give_up(self._jobs.give_up(error))
        finally:
            self._device_user.leave()

    def _is_urgent(self) -> bool | None:
        """Whether the next work is due so soon that other users of the device should wait for it;
        None: it is bookkeeping, which does not use the device."""
        due = self._due
        return None if due == NOW or self._jobs.closing else due - self._clock() <= URGENT_S

    def _pause(self, most_s: float) -> None:
        """Waits for a new job, at most until the next work becomes urgent."""
        calm_s = self._due - URGENT_S - self._clock()
        self._jobs.pause(max(0.0, min(most_s, calm_s)))

    @property
    def _due(self) -> float:
        return min(self._jobs.due, self._rendering.due)

    def _on_device(self) -> AbstractContextManager[Any]:
        """On a GPU, a CUDA stream of its own with a higher priority: the language model is far
        enough ahead of its listeners, while the codec stands between a code and its sound."""
        if self.codec.device.type != "cuda":
            return nullcontext()
        torch.cuda.synchronize(self.codec.device)  # weights loaded on other streams are there
        own = torch.cuda.Stream(self.codec.device, priority=-1)  # type: ignore[no-untyped-call]
        return torch.cuda.stream(own)


@dataclass(eq=False)
class _Rendering:
    """Codes of one reply whose sound is not complete."""

    batch: DecoderBatchLike
    due: float
    result: Result
    pieces: list[Samples] = field(default_factory=list)
    cost_s: float = 0.0


class RenderBatcher:
    """Renders replies of many conversations in common steps, on the codec's thread. A step renders
    every reply of a batch that has a whole chunk. Its deadline is that of the reply whose sound
    runs out first."""

    def __init__(
        self, clock: Callable[[], float], health: Health, costs: Mapping[str, StepCosts]
    ) -> None:
        self._clock, self._health, self._costs = clock, health, costs
        self._sounded: WeakSet[Any] = WeakSet()  # replies whose first chunk was rendered
        self._waiting: dict[Any, _Rendering] = {}  # by the batch's reply

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def due(self) -> float:
        return min((one.due for one in self._waiting.values()), default=float("inf"))

    def begin(
        self,
        batch: DecoderBatchLike,
        reply: Any,
        codes: Sequence[int],
        due: float,
        result: Result,
    ) -> None:
        batch.push(reply, codes)
        if any(one is reply for one in batch.ready):
            self._waiting[reply] = _Rendering(batch, due, result)
        else:  # the codes settle no sound yet
            settle(result, Done(_joined([]), 0.0))

    def forget(self, reply: Any) -> None:
        self._waiting.pop(reply, None)

    def step(self) -> None:
        """One step of every batch with waiting replies."""
        for batch in {id(one.batch): one.batch for one in self._waiting.values()}.values():
            self._step(batch)

    def give_up(self, error: Exception) -> None:
        for one in self._waiting.values():
            settle(one.result, error)
        self._waiting.clear()

    def _step(self, batch: DecoderBatchLike) -> None:
        mine = {reply: one for reply, one in self._waiting.items() if one.batch is batch}
        began = self._clock()
        try:
            sound = batch.step()
            still = set(map(id, batch.ready))
        except Exception as error:  # the reply that caused it is unknown, so all of them fail
            if not isinstance(error, MossliveError):  # a refusal is not a failure
                self._health.failed("rendering", error)
            for reply, one in mine.items():
                del self._waiting[reply]
                settle(one.result, error)
                batch.cancel(reply)
            return
        self._health.succeeded("rendering")
        now = self._clock()
        cost_s = now - began
        if sound:
            kind = "render" if all(reply in self._sounded for reply in sound) else "render_first"
            self._costs[kind].observe(len(sound), cost_s, now)
            self._sounded.update(sound)
        for reply, one in mine.items():
            if reply in sound:
                one.pieces.append(sound[reply])
                one.cost_s += cost_s
            if id(reply) not in still:
                del self._waiting[reply]
                settle(one.result, Done(_joined(one.pieces), one.cost_s))


def _joined(pieces: list[Samples]) -> Samples:
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.float32)
