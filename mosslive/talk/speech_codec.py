"""The interfaces of a codec that a conversation uses. No behaviour.

`mosslive.codec.Codec` has all of it, and so have the codecs of tests.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec.encoder_stream import HeardTurn
from mosslive.codec.flow_stream import TailRule
from mosslive.codec.voice import Voice

Samples = NDArray[np.float32]


class EncoderStream(Protocol):
    def push(self, pcm: Tensor) -> list[int]: ...
    def finish(self) -> HeardTurn: ...


class RenderingLike(Protocol):
    """The used part of `mosslive.codec.rendering.Rendering`."""

    def ready(self) -> bool: ...
    def result(self) -> dict[Any, Samples]: ...


class DecoderBatchLike(Protocol):
    """The used part of `mosslive.codec.decoder_batch.DecoderBatch`; replies are its own objects
    with `stage` and `done`."""

    @property
    def ready(self) -> list[Any]: ...
    @property
    def warm_chunks(self) -> int: ...
    def add(self, voice: Voice, seed: int = 0) -> Any: ...
    def push(self, reply: Any, codes: Sequence[int]) -> None: ...
    def end(self, reply: Any) -> None: ...
    def start(self, replies: Sequence[Any], urgent: bool = False) -> RenderingLike: ...
    def recordings(self, voice: Voice, replies: int) -> list[Callable[[], None]]: ...
    def step(self) -> dict[Any, Samples]: ...
    def finish(self, reply: Any) -> Samples: ...
    def cancel(self, reply: Any) -> None: ...


class SpeechCodec(Protocol):
    sample_rate: int
    device: torch.device

    def encode(self, pcm: Tensor, sample_rate: int) -> list[int]: ...
    def encoder_stream(self, sample_rate: int) -> EncoderStream: ...
    def delay_codes(self, chunk: int = 5) -> int: ...
    def decoder_batch(
        self, chunk: int = 5, *, tail: TailRule = "reference"
    ) -> DecoderBatchLike: ...
