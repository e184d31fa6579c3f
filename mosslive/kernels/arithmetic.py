"""How float32 products are computed: the one place that touches PyTorch's global switches.

By default PyTorch lets cuDNN round inputs of float32 convolutions to TF32 (10 bits), which moves
results by 1e-4 and more. Here float32 means float32 unless a caller asks for less.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Precision = Literal["fp32", "tf32", "bf16", "fp16"]


@contextmanager
def arithmetic(precision: Precision, *, trials: bool = False) -> Iterator[None]:
    """float32 products exactly as such for "fp32", through TF32 for all others. What was set before
    comes back.

    `trials`: cuDNN chooses its algorithms by trying them, worth it where shapes repeat; the trials
    take memory for workspaces. The switches are the process's, not the thread's: whoever computes
    on several threads must want the same on all.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.benchmark, torch.get_float32_matmul_precision()
    cudnn.allow_tf32, cudnn.benchmark = precision != "fp32", trials
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    try:
        yield
    finally:
        cudnn.allow_tf32, cudnn.benchmark = before[:2]
        torch.set_float32_matmul_precision(before[2])
