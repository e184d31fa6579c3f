"""One row times a matrix (GEMV): most of the decode step of a single conversation.

Only reading the matrix takes time. A program takes a few output channels, has a large part of their
weights in flight at once, and starts reading before the kernel that computes the row has ended.
Invariant: float32 sums, one rounding; gates rounded as `kernels.silu_mul` rounds them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import after_previous, overlap
from mosslive.kernels.gpu.silu_mul import gate


def one_row(
    x: Tensor,
    row_scale: Tensor | None,
    weight: Tensor,
    channel_scale: Tensor | None,
    dtype: torch.dtype,
    gated: bool,
) -> Tensor:
    """x [1, K], weight [N, K] → [1, N], or [1, N/2] if gated; scales with float8 only."""
    channels, width = weight.shape[0] // (1 + gated), weight.shape[1]
    out = x.new_empty(1, channels, dtype=dtype)
    rows, block, warps = _tile(width, weight.element_size(), gated)
    _kernel[(triton.cdiv(channels, rows),)](
        x,
        row_scale,
        weight,
        channel_scale,
        out,
        channels,
        WIDTH=width,
        ROWS=rows,
        BLOCK=block,
        GATED=gated,
        SCALED=row_scale is not None,
        num_warps=warps,
        **overlap(x),
    )
    return out


def _tile(width: int, item_bytes: int, gated: bool) -> tuple[int, int, int]:
    """→ channels per program, inputs per step, warps. Measured on an H200 within a whole decode
    step, where the loads in flight before the row is ready count: 16 to 32 KiB per program."""
    if width > 4096:
        return 4, 1024, 4
    block = max(triton.next_power_of_2(width), 16)
    if gated:
        return 2, block, 4 if item_bytes == 1 else 8
    return 4, block, 8


@triton.jit
def _weights(first, start, exists, columns, WIDTH: tl.constexpr, EVEN: tl.constexpr):  # type: ignore[no-untyped-def]
    """[ROWS, BLOCK] from input `start` on. They are read once and must not evict the row."""
    inside = exists[:, None]
    if not EVEN:
        inside = inside & (columns < WIDTH - start)[None, :]
    return tl.load(first + start, inside, other=0.0, eviction_policy="evict_first")


@triton.jit
def _inputs(x_at, start, columns, WIDTH: tl.constexpr, EVEN: tl.constexpr):  # type: ignore[no-untyped-def]
    """[1, BLOCK] of the row from input `start` on."""
    if EVEN:
        x = tl.load(x_at + start + columns)
    else:
        x = tl.load(x_at + start + columns, columns < WIDTH - start, other=0.0)
    return x.to(tl.float32)[None, :]


@triton.jit
def _kernel(  # type: ignore[no-untyped-def]
    x_at, row_scale_at, weight_at, channel_scale_at, out_at, channels,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    GATED: tl.constexpr, SCALED: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    exists = rows < channels
    columns = tl.arange(0, BLOCK)
    even: tl.constexpr = WIDTH % BLOCK == 0
    first = weight_at + rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    first_up = weight_at + (rows + channels).to(tl.int64)[:, None] * WIDTH + columns[None, :]
    weight = _weights(first, 0, exists, columns, WIDTH, even)
    if GATED:
        up_weight = _weights(first_up, 0, exists, columns, WIDTH, even)
    after_previous(OVERLAP)
    x = _inputs(x_at, 0, columns, WIDTH, even)
    total = weight.to(tl.float32) * x  # [ROWS, BLOCK], summed at the end
    if GATED:
        up_total = up_weight.to(tl.float32) * x
    for start in range(BLOCK, WIDTH, BLOCK):
        weight = _weights(first, start, exists, columns, WIDTH, even)
        if GATED:
            up_weight = _weights(first_up, start, exists, columns, WIDTH, even)
        x = _inputs(x_at, start, columns, WIDTH, even)
        total += weight.to(tl.float32) * x
        if GATED:
            up_total += up_weight.to(tl.float32) * x
    result = tl.sum(total, 1)
    if SCALED:
        row_scale = tl.load(row_scale_at)
        result = result * row_scale * tl.load(channel_scale_at + rows, exists, other=0.0)
    result = result.to(out_at.dtype.element_ty)
    if GATED:
        up = tl.sum(up_total, 1)
        if SCALED:
            up = up * row_scale * tl.load(channel_scale_at + channels + rows, exists, other=0.0)
        result = gate(result, up.to(result.dtype))
    tl.store(out_at + rows, result, exists)
