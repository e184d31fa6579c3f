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

    def add_rms_norm(self, hidden: Tensor, delta: Tensor, weight: Tensor, eps: float) -> Tensor: ...

    def linear(self, x: Tensor, matrix: Matrix) -> Tensor: ...

    def gated(self, x: Tensor, matrix: Matrix) -> Tensor: ...

    def place_qkv(
        self,
        qkv: Tensor,
        qk_norm: Tensor,
        eps: float,
        cos: Tensor,
        signed_sin: Tensor,
        positions: Tensor,
        slots: Tensor,
        pages: LayerPages,
    ) -> Tensor: ...

    def paged_attention(
        self, q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: PagedBatch
    ) -> Tensor: ...

    def choose(self, logits: Tensor, draws: Draws) -> Tensor: ...


def kernel_set(device: torch.device) -> KernelSet:
    name = "mosslive.kernels.gpu" if device.type == "cuda" else "mosslive.kernels"
    return cast(KernelSet, import_module(name))
