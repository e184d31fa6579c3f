"""A few rows times a matrix (skinny GEMM): rows are padded to a tensor-core tile.

Takes any number of rows, but reads the matrix again for every further tile of them.
Invariant: float32 sums, one rounding; gates rounded as `kernels.silu_mul` rounds them.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import overlap, release_next, wait_for_previous
from mosslive.kernels.gpu.silu_mul import gate


@dataclass(frozen=True)
class _Tiling:
    channels: int  # per program
    depth_bytes: int  # of each channel and row of x in one loop iteration
    stages: int  # loop iterations whose weights are in flight at once
    warps: int


# Measured on an H200 (4.2 TB/s, 132 SMs) with 4096 inputs, and 12288 for the narrow; by rows of x
# in a tile. A narrow matrix is about one program per SM, which must then have many loads in flight.
# Two programs on one SM would leave other SMs idle, so each fills the shared memory of one.
_NARROW_CHANNELS = 32 * 132
_NARROW = {16: _Tiling(32, 512, 6, 4), 32: _Tiling(32, 512, 6, 4), 64: _Tiling(32, 256, 5, 4)}
_WIDE = {16: _Tiling(32, 256, 5, 4), 32: _Tiling(32, 256, 5, 4), 64: _Tiling(64, 256, 4, 4)}
_GATED = {16: _Tiling(32, 256, 4, 4), 32: _Tiling(64, 256, 3, 8), 64: _Tiling(64, 128, 4, 4)}


def few_rows(
    x: Tensor,
    row_scale: Tensor | None,
    weight: Tensor,
    channel_scale: Tensor | None,
    dtype: torch.dtype,
    gated: bool,
) -> Tensor:
    """x [T, K], weight [N, K] → [T, N], or [T, N/2] if gated; scales with float8 only."""
    count, channels, width = len(x), weight.shape[0] // (1 + gated), weight.shape[1]
    out = x.new_empty(count, channels, dtype=dtype)
    tile = min(max(triton.next_power_of_2(count), 16), 64)
    tilings = _GATED if gated else _NARROW if channels <= _NARROW_CHANNELS else _WIDE
    tiling = tilings[tile]
    _kernel[(triton.cdiv(channels, tiling.channels), triton.cdiv(count, tile))](
        x,
        row_scale,
        weight,
        channel_scale,
        out,
        count,
        channels,
        WIDTH=width,
        TILE=tile,
        ROWS=tiling.channels,
        BLOCK=tiling.depth_bytes // weight.element_size(),
        STAGES=tiling.stages,
        GATED=gated,
        SCALED=row_scale is not None,
        num_warps=tiling.warps,
        **overlap(x),
    )
    return out


@triton.jit
def _add_product(total, x, weight):  # type: ignore[no-untyped-def]
    # Hopper's tensor cores keep float8 sums in fewer bits than float32: promote them often.
    return tl.dot(x, weight.T, total, input_precision="ieee", max_num_imprecise_acc=128)


@triton.jit
def _kernel(  # type: ignore[no-untyped-def]
    x_at, row_scale_at, weight_at, channel_scale_at, out_at, count, channels,
    WIDTH: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    STAGES: tl.constexpr, GATED: tl.constexpr, SCALED: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    exists = rows < channels
    tokens = tl.program_id(1) * TILE + tl.arange(0, TILE)
    wanted = tokens < count
    columns = tl.arange(0, BLOCK)
    first = weight_at + rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    first_up = weight_at + (rows + channels).to(tl.int64)[:, None] * WIDTH + columns[None, :]
    first_x = x_at + tokens.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    total = tl.zeros((TILE, ROWS), tl.float32)
    up_total = tl.zeros((TILE, ROWS), tl.float32)
    wait_for_previous(OVERLAP)
    for start in tl.range(0, WIDTH, BLOCK, num_stages=STAGES):
        inside = (columns < WIDTH - start)[None, :]
        x = tl.load(first_x + start, wanted[:, None] & inside, other=0.0)
        weight = tl.load(first + start, exists[:, None] & inside, other=0.0)
        total = _add_product(total, x, weight)
        if GATED:
            up_weight = tl.load(first_up + start, exists[:, None] & inside, other=0.0)
            up_total = _add_product(up_total, x, up_weight)
    release_next(OVERLAP)
    if SCALED:
        row_scale = tl.load(row_scale_at + tokens, wanted, other=0.0)[:, None]
        total *= row_scale * tl.load(channel_scale_at + rows, exists, other=0.0)[None, :]
    result = total.to(out_at.dtype.element_ty)
    if GATED:
        if SCALED:
            up_scale = tl.load(channel_scale_at + channels + rows, exists, other=0.0)
            up_total *= row_scale * up_scale[None, :]
        result = gate(result, up_total.to(result.dtype))
    at = out_at + tokens.to(tl.int64)[:, None] * channels + rows[None, :]
    tl.store(at, result, wanted[:, None] & exists[None, :])
