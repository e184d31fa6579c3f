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

from mosslive.codec.conformer import LOOK_AHEAD
from mosslive.codec.flow_stream import TailRule
from mosslive.codec.voice import Voice
from mosslive.talk.jobs import NOW, Done, Jobs, Value
from mosslive.talk.rendering import CommonRendering
from mosslive.talk.speech_codec import Samples, SpeakingBatch, SpeechCodec

# A turn that is encoded whole is wanted soon; sound that somebody hears, or is about to, goes
# before it.
_WHOLE_TURN_S = 0.5


class CodecThread:
    """Deadlines are moments of `clock`, which is that of all conversations here."""

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
        self._jobs = Jobs("the codec's thread")
        self._rendering = CommonRendering(clock)
        self._batches: dict[int, SpeakingBatch] = {}  # by chunk
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="mosslive-codec", daemon=True)
            self._thread.start()

    # What conversations ask for.

    def do(self, work: Callable[[], Value], due: float = NOW) -> "asyncio.Future[Done[Value]]":
        """Runs `work` on the thread; of the jobs that wait, the earliest `due` first."""
        answer: asyncio.Future[Done[Value]] = asyncio.get_running_loop().create_future()
        self._jobs.put(work, due, answer)
        return answer

    def tell(self, work: Callable[[], None]) -> None:
        """Runs `work` soon; nobody waits for it."""
        self._jobs.put(work, NOW, None)

    def render(
        self,
        reply: Callable[[], tuple[SpeakingBatch, Any]],
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

        self._jobs.put(work, begin, answer, settles=False)
        return answer

    async def encode(self, wave: Tensor, rate_hz: int, due: float | None = None) -> list[int]:
        """A whole turn at once; default: soon, but after what somebody is about to hear."""
        due = self._clock() + _WHOLE_TURN_S if due is None else due
        return (await self.do(lambda: self.codec.encode(wave, rate_hz), due)).value

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
        self._jobs.close()
        if self._thread:
            await asyncio.to_thread(self._thread.join)

    # On the thread.

    def batch(self, chunk: int) -> SpeakingBatch:
        if chunk not in self._batches:
            self._batches[chunk] = self.codec.decoder_batch(chunk, tail=self._tail)
        return self._batches[chunk]

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
                    self.step()
        except BaseException as error:  # told to all who wait, and to all who come
            self._rendering.give_up(self._jobs.give_up(error))

    def _on_device(self) -> AbstractContextManager[Any]:
        """On a GPU a stream of its own, which goes first: the language model is never far behind
        its listeners, the codec stands between a code and the ear."""
        if self.codec.device.type != "cuda":
            return nullcontext()
        torch.cuda.synchronize(self.codec.device)  # what was loaded elsewhere is there
        own = torch.cuda.Stream(self.codec.device, priority=-1)  # type: ignore[no-untyped-call]
        return torch.cuda.stream(own)
