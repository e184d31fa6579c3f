"""The one place where conversations use the codec: a thread that owns it, and a line in front.

The hearing and speaking of all conversations pass through here, what is due first before the rest,
and replies are rendered together; so the event loop never waits for a network. Jobs of one owner do
not overtake each other, because it awaits each before the next. Knows nothing of turns or rows.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.flow_stream import TailRule
from mosslive.codec.voice import Voice
from mosslive.engine.device_priority import DevicePriority
from mosslive.engine.health import Health
from mosslive.talk.job_queue import NOW, Done, JobQueue, Value
from mosslive.talk.production import Production
from mosslive.talk.render_batcher import RenderBatcher
from mosslive.talk.speech_codec import DecoderBatchLike, Samples, SpeechCodec
from mosslive.talk.warmup import hearing_pieces, speaking_pieces

# A turn that is encoded whole, or what is prepared for later, is wanted soon; sound that somebody
# hears, or is about to, goes before it.
_CAN_WAIT_S = 0.5
# What is due within this, other users of the device wait for: longer than any step takes.
URGENT_S = 0.1


class CodecWorker:
    """Deadlines are moments of `clock`, which is that of all conversations here."""

    def __init__(
        self,
        codec: SpeechCodec,
        *,
        clock: Callable[[], float] = time.monotonic,
        threaded: bool = True,
        priority: DevicePriority | None = None,
    ) -> None:
        """`threaded=False`: no thread; whoever made it calls `step`. `priority`: of those who use
        the same device, as a rule the engine's."""
        self.codec = codec
        self.sample_rate = codec.sample_rate
        self.open_turns = self.open_replies = 0  # that hold memory of the codec
        self._clock = clock
        self.production = Production()  # of the sound of all conversations
        self.health = Health("the codec's thread", clock)
        self._jobs = JobQueue(self.health)
        self._rendering = RenderBatcher(clock, self.health)
        self._batches: dict[tuple[int, TailRule], DecoderBatchLike] = {}
        self._device_user = (priority or DevicePriority()).join(self._jobs.ring)
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="mosslive-codec", daemon=True)
            self._thread.start()

    # What conversations ask for.

    def do(
        self, work: Callable[[], Value], due: float = NOW, kind: str = ""
    ) -> "asyncio.Future[Done[Value]]":
        """Runs `work` on the thread; of the jobs that wait, the earliest `due` first. `kind`: of
        work, for the health of the thread; empty: not judged."""
        answer: asyncio.Future[Done[Value]] = asyncio.get_running_loop().create_future()
        self._jobs.put(work, due, answer, kind=kind)
        return answer

    def tell(self, work: Callable[[], None]) -> None:
        """Runs `work` soon; nobody waits for it."""
        self._jobs.put(work, NOW, None)

    def render(
        self,
        reply: Callable[[], tuple[DecoderBatchLike, Any]],
        codes: Sequence[int],
        due: float,
        begin: float = NOW,
    ) -> "asyncio.Future[Done[Samples]]":
        """Codes of a reply → all the sound they settle, in steps shared with other replies.
        `begin`: it takes part in no step of replies that are due before this moment."""
        answer: asyncio.Future[Done[Samples]] = asyncio.get_running_loop().create_future()

        def work() -> None:
            batch, member = reply()
            self._rendering.begin(batch, member, codes, due, answer)

        self._jobs.put(work, begin, answer, settles=False, kind="opening replies")
        return answer

    async def encode(self, wave: Tensor, rate_hz: int, due: float | None = None) -> list[int]:
        """A whole turn at once; default: soon, but after what somebody is about to hear."""
        due = self._clock() + _CAN_WAIT_S if due is None else due
        encoded = self.do(lambda: self.codec.encode(wave, rate_hz), due, "encoding")
        return (await encoded).value

    async def warm(
        self, voice: Voice, chunk: int, replies: int = 1, tail: TailRule = "cached"
    ) -> None:
        """Does once what up to so many conversations at a time can ask for, so that nobody waits
        for it: loads the networks, prepares the voice, and on a GPU compiles and records

        - the hearing of so many turns at once, and steps of 1 to 16 codes, as at the end of a
          question, also far into a turn;
        - first and further chunks of 1, 2, 4 ... replies together, as many as the pool has room
          for;
        - ends of replies, whatever number of codes is left.

        Other voices are prepared when they are first used. On a CPU one turn and two replies, one
        after the other, are enough. Done piece by piece, behind the sound of those who speak
        meanwhile."""
        recorded = self.codec.device.type == "cuda"

        async def do(piece: Callable[[], Value]) -> Value:
            return (await self.do(piece, self._clock() + _CAN_WAIT_S)).value

        for piece in hearing_pieces(self.codec, replies, recorded):
            await do(piece)
        # Apart from the batch of those who speak now: their sound is theirs.
        batch = await do(lambda: self.codec.decoder_batch(chunk, tail=tail))
        for piece in speaking_pieces(batch, voice, chunk, replies, recorded):
            try:
                await do(piece)
            except PoolFull:
                if not self.open_replies:  # else those who speak now have the room
                    raise

    async def close(self) -> None:
        """After the jobs that wait."""
        self._jobs.close()
        if self._thread:
            await asyncio.to_thread(self._thread.join)
        self._device_user.leave()

    # On the thread.

    def batch(self, chunk: int, tail: TailRule = "cached") -> DecoderBatchLike:
        """Of all replies that are rendered like this."""
        if (chunk, tail) not in self._batches:
            self._batches[chunk, tail] = self.codec.decoder_batch(chunk, tail=tail)
        return self._batches[chunk, tail]

    def forget(self, member: Any) -> None:
        """A reply that is closed gets no more sound."""
        self._rendering.forget(member)

    def step(self) -> bool:
        """The most urgent thing: a job, or one step of all replies that can be rendered. False:
        there is nothing to do."""
        if job := self._jobs.take(self._rendering.due):
            self._jobs.do(job, self._clock)
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
        except BaseException as error:  # told to all who wait, and to all who come
            self._rendering.give_up(self._jobs.give_up(error))
        finally:
            self._device_user.leave()

    def _is_urgent(self) -> bool | None:
        """Whether what comes next is due so soon that others on the device should wait for it;
        None: it is bookkeeping, which disturbs nobody."""
        due = self._due
        return None if due == NOW or self._jobs.closing else due - self._clock() <= URGENT_S

    def _pause(self, most_s: float) -> None:
        """Until there is news, or what can wait now can wait no longer."""
        calm_s = self._due - URGENT_S - self._clock()
        self._jobs.pause(max(0.0, min(most_s, calm_s)))

    @property
    def _due(self) -> float:
        return min(self._jobs.due, self._rendering.due)

    def _on_device(self) -> AbstractContextManager[Any]:
        """On a GPU a stream of its own, which goes first: the language model is never far behind
        its listeners, the codec stands between a code and the ear."""
        if self.codec.device.type != "cuda":
            return nullcontext()
        torch.cuda.synchronize(self.codec.device)  # what was loaded elsewhere is there
        own = torch.cuda.Stream(self.codec.device, priority=-1)  # type: ignore[no-untyped-call]
        return torch.cuda.stream(own)
