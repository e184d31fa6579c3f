"""The interfaces of a codec that a conversation uses. No behaviour.

`mosslive.codec.Codec` has all of it, and so have the codecs of tests.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec.flow_stream import TailRule
from mosslive.codec.voice import Voice

Samples = NDArray[np.float32]


class Running(Protocol):
    """A step that was started; on a GPU it may still run."""

    def ready(self) -> bool:
        """Whether the result is there. Never waits."""
        ...

    def result(self) -> dict[Any, Any]:
        """By turn: its new codes, or `HeardTurn`; by reply: its new samples. Waits."""
        ...


class EncoderBatchLike(Protocol):
    """The used part of `mosslive.codec.encoder_batch.EncoderBatch`; turns are its own objects."""

    @property
    def ready(self) -> list[Any]: ...
    def add(self) -> Any: ...
    def record(self, most_turns: int) -> None: ...
    def push(self, turn: Any, pcm: Tensor) -> None: ...
    def start(self, turns: Sequence[Any]) -> Running: ...
    def finish(self, turns: Sequence[Any]) -> Running: ...
    def cancel(self, turn: Any) -> None: ...


class DecoderBatchLike(Protocol):
    """The used part of `mosslive.codec.decoder_batch.DecoderBatch`; replies are its own objects
    with a `stage`: "first", "steady" or "last"."""

    @property
    def ready(self) -> list[Any]: ...
    @property
    def warm_chunks(self) -> int: ...
    def add(self, voice: Voice, seed: int = 0) -> Any: ...
    def push(self, reply: Any, codes: Sequence[int]) -> None: ...
    def end(self, reply: Any) -> None: ...
    def start(self, replies: Sequence[Any], urgent: bool = False) -> Running: ...
    def recordings(self, voice: Voice, replies: int) -> list[Callable[[], None]]: ...
    def cancel(self, reply: Any) -> None: ...


class SpeechCodec(Protocol):
    sample_rate: int
    device: torch.device

    def encode(self, pcm: Tensor, sample_rate: int) -> list[int]: ...
    def encoder_batch(self) -> EncoderBatchLike: ...
    def delay_codes(self, chunk: int = 5) -> int: ...
    def decoder_batch(
        self, chunk: int = 5, *, tail: TailRule = "reference"
    ) -> DecoderBatchLike: ...
