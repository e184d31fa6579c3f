"""How products are computed: the only module that changes PyTorch's global switches.

By default PyTorch lets cuDNN round inputs of float32 convolutions to TF32 (10 bits), which moves
results by 1e-4 and more. Here float32 means float32 unless a caller asks for less. PyTorch also
lets cuBLAS add partial sums of a half-precision product in half precision where it splits the sum.
That depends on the shape, so a few shapes are less exact than the others. Here sums are always
float32.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Precision = Literal["fp32", "tf32", "bf16", "fp16"]


def sum_in_float32() -> None:
    """From now on half-precision products are summed in float32, in the whole process. Nothing here
    needs less, and switching back could happen during another thread's graph capture."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_bf16_reduced_precision_reduction = False
    matmul.allow_fp16_reduced_precision_reduction = False


def disable_onednn_on_arm() -> None:
    """From now on PyTorch on ARM computes without oneDNN, in the whole process. oneDNN with Arm's
    library takes 0.5 ms to start each product, convolution or activation, and ignores PyTorch's
    number of threads. Most steps of a reply on a CPU are far shorter than that."""
    onednn = torch.backends.mkldnn
    if onednn.is_acl_available():  # type: ignore[no-untyped-call]
        onednn.enabled = False  # type: ignore[assignment]


@contextmanager
def arithmetic(precision: Precision, *, cudnn_benchmark: bool = False) -> Iterator[None]:
    """Computes float32 products in float32 for "fp32", through TF32 for all others. Restores the
    previous settings at the end.

    `cudnn_benchmark`: cuDNN chooses its algorithms by timing them. Use it where shapes repeat; the
    timing takes memory for workspaces. The switches belong to the process, not to the thread:
    threads that compute at the same time must use the same settings.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.benchmark, torch.get_float32_matmul_precision()
    cudnn.allow_tf32, cudnn.benchmark = precision != "fp32", cudnn_benchmark
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    try:
        yield
    finally:
        cudnn.allow_tf32, cudnn.benchmark = before[:2]
        torch.set_float32_matmul_precision(before[2])
