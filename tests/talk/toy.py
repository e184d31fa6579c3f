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
from mosslive.codec.mel import HEARING_HZ
from mosslive.codec.voice import Voice

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


class Finished:
    """A step that is over when it is started."""

    def __init__(self, results: dict[Any, Any]) -> None:
        self._results = results

    def ready(self) -> bool:
        return True

    def result(self) -> dict[Any, Any]:
        return self._results


class ToyTurn:
    def __init__(self) -> None:
        self.wave = torch.zeros(0)
        self.given: list[int] = []

    @property
    def waiting(self) -> int:
        """Whole blocks that are not encoded yet."""
        return len(self.wave) // (HEARING_HZ * 8 // 100) - len(self.given)

    def push(self) -> list[int]:
        end = len(self.given) + self.waiting
        codes = toy_codes(self.wave, HEARING_HZ, live=True)[len(self.given) : end]
        self.given += codes
        return codes

    def finish(self) -> HeardTurn:
        codes = toy_codes(self.wave, HEARING_HZ)
        pairs = enumerate(zip(self.given, codes, strict=False))
        revised = next((index for index, (live, code) in pairs if live != code), None)
        return HeardTurn(codes[len(self.given) :], codes, revised)


class ToyEncoder:
    def __init__(self) -> None:
        self.turns: list[ToyTurn] = []
        self.sizes: list[int] = []  # of the steps made
        self.fails = False
        self.recorded = 0  # turns

    @property
    def ready(self) -> list[ToyTurn]:
        return [turn for turn in self.turns if turn.waiting]

    def record(self, most_turns: int) -> None:
        self.recorded = most_turns

    def add(self) -> ToyTurn:
        if self.fails:
            raise RuntimeError("the toy is deaf")
        self.turns.append(ToyTurn())
        return self.turns[-1]

    def push(self, turn: Any, pcm: Tensor) -> None:
        assert turn in self.turns, "a turn that is closed"
        turn.wave = torch.cat((turn.wave, pcm))

    def start(self, turns: Sequence[Any]) -> Finished:
        self.sizes.append(len(turns))
        return Finished({turn: turn.push() for turn in turns})

    def finish(self, turns: Sequence[Any]) -> Finished:
        finished: dict[Any, Any] = {}
        for turn in turns:
            turn.push()
            finished[turn] = turn.finish()
            self.turns.remove(turn)
        return Finished(finished)

    def fork(self, turn: Any) -> ToyTurn:
        forked = self.add()
        forked.wave, forked.given = turn.wave, [*turn.given]
        return forked

    def cancel(self, turn: Any) -> None:
        if turn in self.turns:
            self.turns.remove(turn)


@dataclass(eq=False)
class ToyReply:
    seed: int
    prompt: int
    codes: list[int] = field(default_factory=list)
    rendered: int = 0
    emitted: int = 0  # samples
    ended: bool = False
    done: bool = False
    overlaps = True

    @property
    def ready(self) -> bool:
        return not self.done and bool(self.hop or self.ended)

    @property
    def stage(self) -> str:
        if self.ended and not self.hop:
            return "last"
        return "steady" if self.rendered else "first"

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
        return [reply for reply in self.replies if reply.ready]

    def add(self, voice: Voice, seed: int = 0) -> ToyReply:
        self.replies.append(ToyReply(seed, voice.codes))
        return self.replies[-1]

    def push(self, reply: Any, codes: Sequence[int]) -> None:
        assert reply in self.replies, "a reply that is closed"
        reply.codes += codes

    def prepared(self, voice: Voice) -> bool:
        return True

    def recordings(self, voice: Voice, replies: int) -> list[Callable[[], None]]:
        return []

    def end(self, reply: Any) -> None:
        reply.ended = True

    def start(self, replies: Sequence[Any], urgent: bool = False) -> Finished:
        return Finished(self.step(replies))

    def step(self, replies: Sequence[Any]) -> dict[Any, Samples]:
        self.sizes.append(len(replies))
        del self.sizes[:-1000]  # hours of a conversation do not fill the memory
        if len(self.sizes) == self.fails_at:
            raise RuntimeError("the toy broke")
        return {reply: self._render(reply) for reply in replies}

    def _render(self, reply: Any) -> Samples:
        if hop := reply.hop:
            reply.rendered += hop
            sound: Samples = reply.emit(SAMPLES * reply.rendered - _HELD)
            return sound
        rest: Samples = reply.emit(len(reply.codes) * SAMPLES)
        reply.done = True
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
        self.hearing = ToyEncoder()

    def encode(self, pcm: Tensor, sample_rate: int) -> list[int]:
        return toy_codes(pcm, sample_rate)

    def delay_codes(self, chunk: int = 5) -> int:
        return 0

    def encoder_batch(self) -> ToyEncoder:
        return self.hearing

    def decoder_batch(self, chunk: int = 5, *, tail: TailRule = "reference") -> ToyBatch:
        return self.speaking


class Halves:
    """One codec hears, another speaks."""

    def __init__(self, hears: Codec, speaks: ToyCodec) -> None:
        self.sample_rate, self.device = speaks.sample_rate, speaks.device
        self.encode, self.encoder_batch = hears.encode, hears.encoder_batch
        self.decoder_batch, self.delay_codes = speaks.decoder_batch, speaks.delay_codes
