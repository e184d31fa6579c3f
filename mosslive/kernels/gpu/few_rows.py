"""A few rows times a matrix: the rows are padded to a tensor core's sixteen, the matrix streams by.

Takes any number of rows, but reads the matrix again for every further tile of them.
Invariant: float32 sums, one rounding; gates rounded as `kernels.silu_mul` rounds them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import overlap
from mosslive.kernels.gpu.silu_mul import gate
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

_TILE = 16  # rows of x in one tile


def few_rows(
    x: Tensor,
    row_scale: Tensor | None,
    weight: Tensor,
    channel_scale: Tensor | None,
    dtype: torch.dtype,
    gated: bool,
) -> Tensor:
    """x [T, K], weight [N, K] → [T, N], or [T, N/2] of gates; the scales come with float8."""
    count, channels, width = len(x), weight.shape[0] // (1 + gated), weight.shape[1]
    out = x.new_empty(count, channels, dtype=dtype)
    rows, block, stages = 32, 256 // weight.element_size(), 4
    _kernel[(triton.cdiv(channels, rows), triton.cdiv(count, _TILE))](
        x,
        row_scale,
        weight,
        channel_scale,
        out,
        count,
        channels,
        WIDTH=width,
        TILE=_TILE,
        ROWS=rows,
        BLOCK=block,
        STAGES=stages,
        GATED=gated,
        SCALED=row_scale is not None,
        num_warps=4,
        **overlap(x),
    )
    return out


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
    first_up = first + channels.to(tl.int64) * WIDTH
    first_x = x_at + tokens.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    total = tl.zeros((TILE, ROWS), tl.float32)
    up_total = tl.zeros((TILE, ROWS), tl.float32)
    if OVERLAP:
        gdc_wait()
    for start in tl.range(0, WIDTH, BLOCK, num_stages=STAGES):
        inside = (columns < WIDTH - start)[None, :]
        x = tl.load(first_x + start, wanted[:, None] & inside, other=0.0)
        weight = tl.load(first + start, exists[:, None] & inside, other=0.0)
        total = tl.dot(x, weight.T, total, input_precision="ieee")
        if GATED:
            up_weight = tl.load(first_up + start, exists[:, None] & inside, other=0.0)
            up_total = tl.dot(x, up_weight.T, up_total, input_precision="ieee")
    if OVERLAP:
        gdc_launch_dependents()
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
