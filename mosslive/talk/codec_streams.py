"""The encoding of one user's turn and the decoding of one reply, as a conversation uses them.

Each makes requests to the codec service; its caller, on an event loop, awaits one call before the
next. Knows nothing of rows, nor of time except deadlines.
"""

import asyncio
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import torch
from torch import Tensor

from mosslive.codec.encoder_stream import HeardTurn
from mosslive.codec.flow_hops import HopCounter
from mosslive.codec.flow_stream import TailRule
from mosslive.codec.mel import HEARING_HZ
from mosslive.codec.resample import ResampleStream
from mosslive.codec.sound import check_rate
from mosslive.codec.voice import Voice, aligned
from mosslive.errors import MossliveError
from mosslive.talk.codec_requests import (
    AdoptReply,
    CloseReply,
    CloseTurn,
    Done,
    EndTurn,
    FinishTurn,
    Hear,
    OpenReply,
    PeekTurn,
    Render,
)
from mosslive.talk.codec_service import CodecService
from mosslive.talk.speech_codec import Samples


class EncodeStream:
    def __init__(self, service: CodecService, rate_hz: int) -> None:
        """`rate_hz`: of the sound that is pushed."""
        self._service, self._number = service, service.new_number()
        self._resampler = ResampleStream(check_rate(rate_hz), HEARING_HZ)
        self._closed = False

    async def push(self, wave: Tensor, due: float) -> Done[list[int]]:
        """wave [n] float32, checked (`codec.sound.mono`) → the codes that it completes; none if
        `end` is called before."""
        self._require_open()
        resampled = self._resampler.push(wave)
        return await self._service.ask(Hear(self._number, resampled, due))

    def end(self) -> None:
        """The turn is over: a waiting `push` returns at once, so that `finish` can follow."""
        self._service.post(EndTurn(self._number))

    async def finish(self, wave: Tensor, due: float) -> Done[HeardTurn]:
        """Encodes the last sound and returns the whole turn. `first_revised` may be a code of the
        last sound, which was not returned before."""
        self._require_open()
        parts = self._resampler.push(wave), self._resampler.finish()
        return await self._service.ask(FinishTurn(self._number, torch.cat(parts), due))

    def peek(self, wave: Tensor, due: float) -> "asyncio.Future[list[int]]":
        """The codes of the turn if it ended with this sound, which `push` gets later. The sound is
        taken at once: `push` may be called before the result is there."""
        self._require_open()
        resampler = copy(self._resampler)  # its methods replace its tensors and change none
        rest = torch.cat((resampler.push(wave), resampler.finish()))
        fork = self._service.new_number()
        asked = self._service.ask(PeekTurn(self._number, fork, rest, due))

        async def codes() -> list[int]:
            try:
                heard: HeardTurn = (await asked).value
                return heard.codes
            finally:
                self._service.post(CloseTurn(fork))

        return asyncio.ensure_future(codes())

    def close(self) -> None:
        """Frees its memory for another turn. Idempotent."""
        self._closed = True
        self._service.post(CloseTurn(self._number))

    def _require_open(self) -> None:
        if self._closed:
            raise MossliveError("this turn was closed")


class DecodeStream:
    """`close` at any time frees its memory."""

    def __init__(
        self,
        service: CodecService,
        voice: Voice,
        chunk: int,
        seed: int,
        tail: TailRule = "cached",
    ) -> None:
        """`tail`: how its end is rendered; see `Codec.decoder_stream`."""
        self._service, self._chunk = service, chunk
        self._reply = OpenReply(service.new_number(), voice, seed, chunk, tail, 0.0)
        # Predicts what the batch, which is on the thread, does with the codes it is given.
        self._count = HopCounter(len(aligned(voice.prompt, chunk).prompt_codes), chunk)
        self._closed = False

    def ready(self, waiting: int) -> bool:
        """Whether so many codes that were not pushed yet fill a chunk, which can be rendered."""
        return self._count.next_hop(waiting) is not None

    @property
    def wanted(self) -> int:
        """Codes to push for the next chunk. More would delay its sound by that of later chunks."""
        return self._count.needed - (self._count.received - self._count.rendered)

    @property
    def needs(self) -> int:
        """Codes that must have come, beyond those rendered, before there is more sound."""
        return self._count.needed + self._service.codec.delay_codes(self._chunk)

    def leads_in(self, waiting: int) -> bool:
        """Whether so many first codes are enough to prepare for the sound of those that follow."""
        return not self._count.received and self._count.leads_in(waiting)

    async def open(self, due: float, speculative: bool = False) -> None:
        """Ahead of the first codes, so that they need not wait for it."""
        self._require_open()
        self._reply = replace(self._reply, apart=speculative)
        await self._service.ask(replace(self._reply, due=due))

    def adopt(self) -> None:
        """What was speculative has a listener from now on."""
        if self._reply.apart and not self._closed:
            self._reply = replace(self._reply, apart=False)
            self._service.post(AdoptReply(self._reply.reply))

    async def push(
        self, codes: Sequence[int], due: float, speculative: bool = False
    ) -> Done[Samples]:
        """All the sound that is settled now. `speculative`: it may never be heard; it joins no
        step that is due before."""
        self._require_open()
        self._count.received += len(codes)
        self._count.render_all()
        request = Render(self._reply, list(codes), due, apart=speculative)
        return await self._service.ask(request)

    async def finish(
        self, codes: Sequence[int], due: float, speculative: bool = False
    ) -> Done[Samples]:
        """Renders the last codes and returns the rest of the sound."""
        self._require_open()
        request = Render(self._reply, list(codes), due, last=True, apart=speculative)
        return await self._service.ask(request)

    def close(self) -> None:
        """May be called while a request waits or runs; its result is an error."""
        self._closed = True
        self._service.post(CloseReply(self._reply.reply))

    def _require_open(self) -> None:
        if self._closed:
            raise MossliveError("this reply was closed")
