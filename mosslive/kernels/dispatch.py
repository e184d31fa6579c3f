"""Which implementation of the operations runs: the PyTorch definitions or the Triton kernels.

This is the only place that decides it, by device and dtype. A network takes a `Dispatch` or the
resulting `KernelSet` as a constructor value and keeps it; nothing here changes after import.
Invariant: both sets compute the same function. float64 always runs through the definitions.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from mosslive.kernels.kernel_set import KernelSet

_TRITON_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))

TORCH = KernelSet()


@cache
def triton_kernels() -> KernelSet:
    """Imports Triton on the first call."""
    from mosslive.kernels.gpu.kernel_set import TritonKernelSet

    return TritonKernelSet()


@dataclass(frozen=True)
class Dispatch:
    """`only="torch"`: the definitions on every device. Training needs them, because the Triton
    kernels have no gradients. `only="triton"`: the kernels on every device; on a CPU this needs
    Triton's interpreter. None: the kernels on CUDA devices, the definitions elsewhere."""

    only: Literal["torch", "triton"] | None = None

    def __call__(self, x: Tensor) -> KernelSet:
        """The kernels for tensors like x. A network that may be moved or converted asks with each
        call."""
        return self._choose(x.is_cuda, x.dtype)

    def kernels(self, device: torch.device, dtype: torch.dtype) -> KernelSet:
        """The kernels for a network that stays on its device."""
        return self._choose(device.type == "cuda", dtype)

    def _choose(self, cuda: bool, dtype: torch.dtype) -> KernelSet:
        only = self.only
        if only == "torch" or not (cuda or only == "triton") or dtype not in _TRITON_DTYPES:
            return TORCH
        return triton_kernels()


AUTO = Dispatch()
TORCH_ONLY = Dispatch("torch")
TRITON_ONLY = Dispatch("triton")
