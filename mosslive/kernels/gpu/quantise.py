"""Triton version of `kernels.quantise`: a program finds its row's maximum and writes a part of it.

One program for a long row would keep the whole device waiting for one SM; reading the row once per
part costs less. Invariant: the definition's bits, since every operation rounds in the same way.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import after_previous, overlap
from mosslive.kernels.quantise import LARGEST, SMALLEST_SCALE

_LONGEST = 32768  # values of a row that one program can hold in registers
_PART = 2048  # values a program writes
_LARGEST = tl.constexpr(LARGEST)
_SMALLEST_SCALE = tl.constexpr(SMALLEST_SCALE)


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [T, K] → q float8_e4m3fn [T, K], scale float32 [T]: max|row| / 448, never 0."""
    count, width = x.shape
    if not x.is_contiguous() or width > _LONGEST:
        raise ValueError(f"rows of {width} values; allowed: contiguous rows of at most {_LONGEST}")
    q = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    scale = x.new_empty(count, dtype=torch.float32)
    block = triton.next_power_of_2(width)
    if count:
        _kernel[(count, triton.cdiv(width, _PART))](
            x,
            q,
            scale,
            WIDTH=width,
            BLOCK=block,
            PART=min(block, _PART),
            num_warps=min(max(block // 256, 1), 16),
            **overlap(x),
        )
    return q, scale


@triton.jit
def scale_of(row):  # type: ignore[no-untyped-def]
    """The scale of a row given as float32."""
    # The maximum over the bits as integers, which order like floats without a sign, with NaN above
    # all: a float maximum would ignore a NaN, and the row would come out finite and wrong.
    bits = row.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    scale = tl.div_rn(tl.max(bits, 0).to(tl.float32, bitcast=True), _LARGEST)
    return tl.where(scale < _SMALLEST_SCALE, _SMALLEST_SCALE, scale)


@triton.jit
def as_float8(values, scale):  # type: ignore[no-untyped-def]
    """float32 values of a row, in units of its scale."""
    scaled = values * tl.div_rn(1.0, scale)
    return tl.minimum(tl.maximum(scaled, -_LARGEST), _LARGEST).to(tl.float8e4nv)


@triton.jit
def _kernel(  # type: ignore[no-untyped-def]
    x_at, q_at, scale_at,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    all_columns = tl.arange(0, BLOCK)
    columns = part * PART + tl.arange(0, PART)
    inside = columns < WIDTH
    after_previous(OVERLAP)
    own = tl.load(x_at + row * WIDTH + columns, inside, other=0).to(tl.float32)
    whole = tl.load(x_at + row * WIDTH + all_columns, all_columns < WIDTH, other=0).to(tl.float32)
    scale = scale_of(whole)
    tl.store(q_at + row * WIDTH + columns, as_float8(own, scale), inside)
    if part == 0:
        tl.store(scale_at + row, scale)
