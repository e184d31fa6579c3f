"""The encoding of one user's turn and the decoding of one reply, as a conversation uses them.

Each stream is opened on the codec's thread when it is first needed; its caller, on an event loop,
awaits one call before the next. Knows nothing of rows, nor of time except deadlines.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from mosslive.codec.encoder_stream import HeardTurn
from mosslive.codec.flow_hops import HopCounter
from mosslive.codec.flow_stream import TailRule
from mosslive.codec.voice import Voice, aligned
from mosslive.errors import MossliveError
from mosslive.talk.codec_worker import CodecWorker
from mosslive.talk.job_queue import NOW, Done
from mosslive.talk.speech_codec import DecoderBatchLike, EncoderStream, Samples


class EncodeStream:
    def __init__(self, thread: CodecWorker, rate_hz: int) -> None:
        self._thread, self._rate_hz = thread, rate_hz
        self._source: EncoderStream | None = None
        self._closed = False

    async def push(self, wave: Tensor, due: float) -> Done[list[int]]:
        def work() -> list[int]:
            source, began = self._opened(), self._thread.now()
            codes = source.push(wave)
            self._thread.encoded(len(codes), began)
            return codes

        return await self._thread.do(work, due, "hearing")

    async def finish(self, wave: Tensor, due: float) -> Done[HeardTurn]:
        """Encodes the last sound and returns the whole turn. `first_revised` may be a code of the
        last sound, which was not returned before."""

        def work() -> HeardTurn:
            source = self._opened()
            if len(wave):
                source.push(wave)
            return source.finish()

        return await self._thread.do(work, due, "hearing the end of a turn")

    def close(self) -> None:
        """Frees its memory for another turn. Idempotent."""
        self._closed = True
        self._thread.post(self._shut)

    # On the thread.

    def _opened(self) -> EncoderStream:
        if self._closed:
            raise MossliveError("this turn was closed")
        if self._source is None:
            self._source = self._thread.codec.encoder_stream(self._rate_hz)
            self._thread.open_turns += 1
        return self._source

    def _shut(self) -> None:
        if self._source is not None:
            self._source = None
            self._thread.open_turns -= 1


class DecodeStream:
    """`close` at any time frees its memory."""

    def __init__(
        self,
        thread: CodecWorker,
        voice: Voice,
        chunk: int,
        seed: int,
        tail: TailRule = "cached",
    ) -> None:
        """`tail`: how its end is rendered; see `Codec.decoder_stream`."""
        self._thread, self._voice, self._chunk, self._seed = thread, voice, chunk, seed
        self._tail: TailRule = tail
        # Predicts what the batch, which is on the thread, does with the codes it is given.
        self._count = HopCounter(len(aligned(voice.prompt, chunk).prompt_codes), chunk)
        self._member: Any = None  # of the batch
        self._closed = False

    def ready(self, waiting: int) -> bool:
        """Whether so many codes that were not pushed yet fill a chunk, which can be rendered."""
        return self._count.next_hop(waiting) is not None

    @property
    def needs(self) -> int:
        """Codes that must have come, beyond those rendered, before there is more sound."""
        return self._count.needed + self._thread.codec.delay_codes(self._chunk)

    def leads_in(self, waiting: int) -> bool:
        """Whether so many first codes are enough to prepare for the sound of those that follow."""
        return not self._count.received and self._count.leads_in(waiting)

    async def open(self, due: float) -> None:
        """Ahead of the first codes, so that they need not wait for it."""
        await self._thread.do(self._opened, due, "opening replies")

    async def push(
        self, codes: Sequence[int], due: float, speculative: bool = False
    ) -> Done[Samples]:
        """All the sound that is settled now. `speculative`: it may never be heard; it joins no
        step that is due before."""
        given = list(codes)
        self._count.received += len(given)
        self._count.render_all()
        return await self._thread.render(self._opened, given, due, due if speculative else NOW)

    async def finish(
        self, codes: Sequence[int], due: float, speculative: bool = False
    ) -> Done[Samples]:
        """Renders the last codes and returns the rest of the sound."""
        first = await self.push(codes, due, speculative)

        def work() -> Samples:
            batch, member = self._opened()
            rest = batch.finish(member)
            self._shut()
            return rest

        last = await self._thread.do(work, due, "ending replies")
        return Done(np.concatenate((first.value, last.value)), first.cost_s + last.cost_s)

    def close(self) -> None:
        """May be called while a job waits or runs; the result of that job is dropped."""
        self._closed = True
        self._thread.post(self._shut)

    # On the thread.

    def _opened(self) -> tuple[DecoderBatchLike, Any]:
        if self._closed:
            raise MossliveError("this reply was closed")
        batch = self._thread.batch(self._chunk, self._tail)
        if self._member is None:
            self._member = batch.add(self._voice, self._seed)
            self._thread.open_replies += 1
        return batch, self._member

    def _shut(self) -> None:
        self._closed = True
        if self._member is not None:
            self._thread.forget(self._member)
            self._thread.batch(self._chunk, self._tail).cancel(self._member)
            self._member = None
            self._thread.open_replies -= 1
