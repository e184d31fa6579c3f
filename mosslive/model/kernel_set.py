"""Which form of the operations a decoder uses: the PyTorch definitions, or their Triton twins.

Both are modules with the same functions; nothing else in the model knows the difference.
"""

from importlib import import_module
from typing import Protocol, cast

import torch
from torch import Tensor

from mosslive.kernels import Draws, LayerPages, Matrix, PagedBatch


class KernelSet(Protocol):
    """The operations of a layer, as `mosslive.kernels` defines them."""

    def embed(
        self, text: Tensor, audio: Tensor, text_table: Tensor, audio_table: Tensor, pad: int
    ) -> Tensor: ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...

    def linear(self, x: Tensor, matrix: Matrix) -> Tensor: ...

    def norm_linear(
        self, hidden: Tensor, delta: Tensor | None, norm: Tensor, eps: float, matrix: Matrix
    ) -> Tensor: ...

    def norm_feed_forward(
        self,
        hidden: Tensor,
        delta: Tensor,
        norm: Tensor,
        eps: float,
        gate_up: Matrix,
        down: Matrix,
    ) -> Tensor: ...

    def attend(
        self,
        qkv: Tensor,
        qk_norm: Tensor,
        eps: float,
        cos: Tensor,
        signed_sin: Tensor,
        pages: LayerPages,
        batch: PagedBatch,
    ) -> Tensor: ...

    def choose(self, logits: Tensor, draws: Draws) -> Tensor: ...


def kernel_set(device: torch.device) -> KernelSet:
    name = "mosslive.kernels.gpu" if device.type == "cuda" else "mosslive.kernels"
    return cast(KernelSet, import_module(name))
