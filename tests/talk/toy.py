"""A codec whose codes and sound are easy to compute, with the published chunks and delays.

A code is the loudness of its 80 ms and of the loudest 80 ms so far; so a louder block later changes
the codes before it, as in the published encoder, which clips quiet sound relative to the loudest.
The sound of a code is 1920 samples of its value; chunks of 5 with 3 codes of look-ahead, and 3840
samples held back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec import Codec
from mosslive.codec.encoder_stream import HeardTurn
from mosslive.codec.flow import FlowVoice
from mosslive.codec.flow_hops import next_hop
from mosslive.codec.flow_stream import TailRule
from mosslive.codec.voice import Voice
from mosslive.talk.speech_codec import RenderingLike

SAMPLES = 1920
_HELD = 3840
Samples = NDArray[np.float32]

TOY_VOICE = Voice(FlowVoice(torch.zeros(5).long(), torch.zeros(20, 80), torch.zeros(192)), "toy")


def toy_codes(wave: Tensor, rate_hz: int, live: bool = False) -> list[int]:
    block = rate_hz * 8 // 100
    blocks = [wave[first : first + block] for first in range(0, len(wave), block)]
    loud = [min(15, int(piece.abs().max() * 16)) for piece in blocks]
    loudest = accumulate(loud, max) if live else repeat(max(loud, default=0))
    return [own + 16 * most for own, most in zip(loud, loudest, strict=False)]


def toy_sound(codes: Sequence[int]) -> Samples:
    return np.repeat(np.array(codes, dtype=np.float32) / 1000, SAMPLES)


class ToyHearing:
    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._wave = torch.zeros(0)
        self._given: list[int] = []

    def push(self, pcm: Tensor) -> list[int]:
        self._wave = torch.cat((self._wave, pcm))
        whole = len(self._wave) // (self._rate_hz * 8 // 100)
        codes = toy_codes(self._wave, self._rate_hz, live=True)[len(self._given) : whole]
        self._given += codes
        return codes

    def finish(self) -> HeardTurn:
        codes = toy_codes(self._wave, self._rate_hz)
        pairs = enumerate(zip(self._given, codes, strict=False))
        revised = next((index for index, (live, code) in pairs if live != code), None)
        return HeardTurn(codes[len(self._given) :], codes, revised)


@dataclass(eq=False)
class ToyReply:
    seed: int
    prompt: int
    codes: list[int] = field(default_factory=list)
    rendered: int = 0
    emitted: int = 0  # samples

    @property
    def hop(self) -> int | None:
        return next_hop(len(self.codes), self.rendered, self.prompt, 5)

    def emit(self, until: int) -> Samples:
        first = self.emitted // SAMPLES
        sound = toy_sound(self.codes[first : -(-until // SAMPLES)])
        sound = sound[self.emitted - first * SAMPLES : until - first * SAMPLES]
        self.emitted += len(sound)
        return sound


class ToyBatch:
    warm_chunks = 2

    def __init__(self) -> None:
        self.replies: list[ToyReply] = []
        self.sizes: list[int] = []  # of the steps made
        self.fails_at: int | None = None  # the step that fails

    @property
    def ready(self) -> list[ToyReply]:
        return [reply for reply in self.replies if reply.hop]

    def add(self, voice: Voice, seed: int = 0) -> ToyReply:
        self.replies.append(ToyReply(seed, voice.codes))
        return self.replies[-1]

    def push(self, reply: Any, codes: Sequence[int]) -> None:
        assert reply in self.replies, "a reply that is closed"
        reply.codes += codes

    def recordings(self, voice: Voice, replies: int) -> list[Callable[[], None]]:
        return []

    def end(self, reply: Any) -> None:
        raise NotImplementedError

    def start(self, replies: Sequence[Any], urgent: bool = False) -> RenderingLike:
        raise NotImplementedError

    def step(self) -> dict[Any, Samples]:
        ready = self.ready
        self.sizes.append(len(ready))
        if len(self.sizes) == self.fails_at:
            raise RuntimeError("the toy broke")
        for reply in ready:
            reply.rendered += reply.hop or 0
        return {reply: reply.emit(SAMPLES * reply.rendered - _HELD) for reply in ready}

    def finish(self, reply: Any) -> Samples:
        rest: Samples = reply.emit(len(reply.codes) * SAMPLES)
        self.cancel(reply)
        return rest

    def cancel(self, reply: Any) -> None:
        if reply in self.replies:
            self.replies.remove(reply)


class ToyCodec:
    sample_rate = 24_000
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.speaking = ToyBatch()
        self.hearing_fails = False

    def encode(self, pcm: Tensor, sample_rate: int) -> list[int]:
        return toy_codes(pcm, sample_rate)

    def delay_codes(self, chunk: int = 5) -> int:
        return 0

    def encoder_stream(self, sample_rate: int) -> ToyHearing:
        if self.hearing_fails:
            raise RuntimeError("the toy is deaf")
        return ToyHearing(sample_rate)

    def decoder_batch(self, chunk: int = 5, *, tail: TailRule = "reference") -> ToyBatch:
        return self.speaking


class Halves:
    """One codec hears, another speaks."""

    def __init__(self, hears: Codec, speaks: ToyCodec) -> None:
        self.sample_rate, self.device = speaks.sample_rate, speaks.device
        self.encode, self.encoder_stream = hears.encode, hears.encoder_stream
        self.decoder_batch, self.delay_codes = speaks.decoder_batch, speaks.delay_codes
