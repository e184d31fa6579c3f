"""How products are computed: the one place that touches PyTorch's global switches.

By default PyTorch lets cuDNN round inputs of float32 convolutions to TF32 (10 bits), which moves
results by 1e-4 and more. Here float32 means float32 unless a caller asks for less. It also lets
cuBLAS add up parts of a half-precision product in half precision, where it cuts the sum into parts:
by the shape, so that one shape in many is off. Here sums are float32, always.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Precision = Literal["fp32", "tf32", "bf16", "fp16"]


def sum_in_float32() -> None:
    """Products of halves are summed in float32 from now on, in the whole process: nobody here wants
    less, and a switch that went back could do so in the middle of another thread's recording."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_bf16_reduced_precision_reduction = False
    matmul.allow_fp16_reduced_precision_reduction = False


def without_detours() -> None:
    """On ARM, PyTorch does its work itself from now on, in the whole process. As it comes it hands
    products, convolutions and activations to a library (oneDNN on Arm's) that takes 0.5 ms to
    begin, and its own number of threads whatever PyTorch was told: by far longer than most steps of
    a reply last on a CPU."""
    onednn = torch.backends.mkldnn
    if onednn.is_acl_available():  # type: ignore[no-untyped-call]
        onednn.enabled = False  # type: ignore[assignment]


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
