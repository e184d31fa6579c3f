"""Kernels that start while the previous one still runs (CUDA's programmatic dependent launch, PDL).

A decode step is some 250 short kernels; if each starts only after the previous one has ended, the
memory is idle for a few microseconds each time. A kernel launched with `**overlap(x)` may at once
read what was written before an ordinary launch: weights, and everything written before the last
kernel that was launched without these options, or before the CUDA graph. It calls `after_previous`
(or `wait_for_previous`) before it touches anything else. Invariant: at least one program of every
such kernel calls it, and every program does so before its first read of an activation and before
its first write; then "all earlier kernels are done" holds after the call, as without overlap.
"""

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from mosslive.kernels.wide_steps import may_overlap


def overlap(x: Tensor) -> dict[str, Any]:
    """Launch options for a kernel that has the argument OVERLAP; off without PDL, before Hopper,
    and in wide steps."""
    if not x.is_cuda or not may_overlap() or not _can_overlap(x.device.index):
        return {"OVERLAP": False}
    return {"OVERLAP": True, "launch_pdl": True}


@lru_cache(maxsize=16)
def _can_overlap(device_index: int) -> bool:
    return torch.cuda.get_device_capability(device_index) >= (9, 0)


@triton.jit
def wait_for_previous(OVERLAP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns when all earlier kernels have written everything."""
    if OVERLAP:
        gdc_wait()


@triton.jit
def release_next(OVERLAP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Lets the next kernel start once every program has called this or has ended. With few, large
    programs call it late: an early next kernel crowds onto the SMs that are free first."""
    if OVERLAP:
        gdc_launch_dependents()


@triton.jit
def after_previous(OVERLAP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Lets the next kernel start, then waits until all earlier ones have written everything."""
    release_next(OVERLAP)
    wait_for_previous(OVERLAP)
