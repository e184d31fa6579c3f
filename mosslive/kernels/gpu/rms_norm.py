"""Triton version of `kernels.rms_norm` and `kernels.add_rms_norm`: one program per row.

The row stays in registers between the sum and the product, and while its float8 scale is computed
for a float8 result. Invariant: float32 inside, one rounding to the dtype before the
weight, as the definition says.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import after_previous, overlap
from mosslive.kernels.gpu.quantise import as_float8, scale_of

_LONGEST = 16384  # values of a row that one program can hold in registers


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., D], weight [D] or [H, D] for x [..., H, D] → same shape and dtype as x."""
    if weight.shape != x.shape[x.ndim - weight.ndim :]:
        raise ValueError(f"weight {list(weight.shape)} for {list(x.shape)}")
    _check(x, weight)
    normed = torch.empty_like(x)
    _launch(x, x, weight, normed, eps, add=False)
    return normed


def add_rms_norm(hidden: Tensor, delta: Tensor, weight: Tensor, eps: float) -> Tensor:
    """hidden [T, H] += delta [T, H] in place, rounded to its dtype; → rms_norm of it [T, H]."""
    if delta.shape != hidden.shape or weight.shape != hidden.shape[-1:]:
        raise ValueError(
            f"hidden {list(hidden.shape)}, delta {list(delta.shape)}, weight {list(weight.shape)}"
        )
    _check(hidden, delta, weight)
    normed = torch.empty_like(hidden)
    _launch(hidden, delta, weight, normed, eps, add=True)
    return normed


def norm_float8(
    hidden: Tensor, delta: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """hidden [T, H] += delta [T, H] in place, if there is one; → `quantise_rows` of its norm."""
    given = hidden if delta is None else delta
    if given.shape != hidden.shape or weight.shape != hidden.shape[-1:]:
        raise ValueError(
            f"hidden {list(hidden.shape)}, delta {list(given.shape)}, weight {list(weight.shape)}"
        )
    _check(hidden, given, weight)
    normed = torch.empty_like(hidden, dtype=torch.float8_e4m3fn)
    scale = hidden.new_empty(len(hidden), dtype=torch.float32)
    _launch(hidden, given, weight, normed, eps, delta is not None, scale)
    return normed, scale


def _check(x: Tensor, *others: Tensor) -> None:
    if x.shape[-1] > _LONGEST:
        raise ValueError(f"rows of {x.shape[-1]} values; allowed: at most {_LONGEST}")
    for tensor in (x, *others):
        if not tensor.is_contiguous() or tensor.dtype != x.dtype or tensor.device != x.device:
            raise ValueError("all tensors must be contiguous, of one dtype, on one device")


def _launch(
    hidden: Tensor,
    delta: Tensor,
    weight: Tensor,
    normed: Tensor,
    eps: float,
    add: bool,
    scale: Tensor | None = None,
) -> None:
    width = hidden.shape[-1]
    if hidden.numel() == 0:
        return
    block = triton.next_power_of_2(width)
    _kernel[(hidden.numel() // width,)](
        hidden,
        delta,
        weight,
        normed,
        scale,
        weight.numel() // width,
        eps,
        WIDTH=width,
        BLOCK=block,
        ADD=add,
        FLOAT8=scale is not None,
        num_warps=min(max(block // 256, 1), 16),
        **overlap(hidden),
    )


@triton.jit
def _kernel(  # type: ignore[no-untyped-def]
    hidden_at, delta_at, weight_at, normed_at, scale_at, weight_rows, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr, FLOAT8: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    offsets = row.to(tl.int64) * WIDTH + columns
    weight = tl.load(weight_at + (row % weight_rows) * WIDTH + columns, inside, other=0)
    after_previous(OVERLAP)
    hidden = tl.load(hidden_at + offsets, inside, other=0)
    if ADD:
        delta = tl.load(delta_at + offsets, inside, other=0).to(tl.float32)
        hidden = (hidden.to(tl.float32) + delta).to(hidden.dtype)
        tl.store(hidden_at + offsets, hidden, inside)
    wide = hidden.to(tl.float32)
    mean_square = tl.sum(wide * wide, 0) / WIDTH
    normed = (wide * tl.rsqrt(mean_square + eps)).to(weight.dtype).to(tl.float32)
    normed = (normed * weight.to(tl.float32)).to(weight.dtype)
    if FLOAT8:
        wide = normed.to(tl.float32)
        scale = scale_of(wide)
        tl.store(normed_at + offsets, as_float8(wide, scale), inside)
        tl.store(scale_at + row, scale)
    else:
        tl.store(normed_at + offsets, normed, inside)
