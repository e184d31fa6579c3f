"""Twin of `kernels.quantise`: one program per row, which stays in registers between maximum and
division. Divisions are the exactly rounded ones, so that results equal the definition's bit by bit.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import after_previous, overlap
from mosslive.kernels.quantise import LARGEST, SMALLEST_SCALE

_LONGEST = 32768  # values of a row that one program can hold in registers
_LARGEST = tl.constexpr(LARGEST)
_SMALLEST_SCALE = tl.constexpr(SMALLEST_SCALE)


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [T, K] → q float8_e4m3fn [T, K], scale float32 [T]: max|row| / 448, never 0."""
    count, width = x.shape
    if not x.is_contiguous() or width > _LONGEST:
        raise ValueError(f"needs contiguous rows of at most {_LONGEST} values, not {width}")
    q = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    scale = x.new_empty(count, dtype=torch.float32)
    block = triton.next_power_of_2(width)
    if count:
        _kernel[(count,)](
            x,
            q,
            scale,
            WIDTH=width,
            BLOCK=block,
            num_warps=min(max(block // 512, 1), 16),
            **overlap(x),
        )
    return q, scale


@triton.jit
def quantise(wide):  # type: ignore[no-untyped-def]
    """float32 [n] → float8 [n] and its scale."""
    scale = tl.div_rn(tl.max(tl.abs(wide), 0), _LARGEST)
    scale = tl.maximum(scale, _SMALLEST_SCALE)
    scaled = tl.div_rn(wide, tl.broadcast_to(scale, wide.shape))
    scaled = tl.minimum(tl.maximum(scaled, -_LARGEST), _LARGEST)
    return scaled.to(tl.float8e4nv), scale


@triton.jit
def _kernel(  # type: ignore[no-untyped-def]
    x_at, q_at, scale_at, WIDTH: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    after_previous(OVERLAP)
    x = tl.load(x_at + row * WIDTH + columns, inside, other=0)
    q, scale = quantise(x.to(tl.float32))
    tl.store(q_at + row * WIDTH + columns, q, inside)
    tl.store(scale_at + row, scale)
