"""Triton version of `kernels.silu_mul`, for products computed by cuBLAS.

Our own product kernels apply the gate themselves (`linear.gated`).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import after_previous, overlap
from mosslive.kernels.gpu.quantise import as_float8, scale_of

_BLOCK = 1024
_LONGEST = 32768  # values of a row that one program can hold in registers


def silu_mul(gate_up: Tensor) -> Tensor:
    """gate_up [..., 2·I], gate first → [..., I]. silu is rounded to the dtype first."""
    if gate_up.shape[-1] % 2 or not gate_up.is_contiguous():
        raise ValueError(f"gate_up {list(gate_up.shape)}; allowed: contiguous, [..., 2·I]")
    width = gate_up.shape[-1] // 2
    out = gate_up.new_empty(*gate_up.shape[:-1], width)
    if out.numel():
        grid = (out.numel() // width, triton.cdiv(width, _BLOCK))
        _kernel[grid](gate_up, out, width, BLOCK=_BLOCK, num_warps=4, **overlap(gate_up))
    return out


def silu_mul_float8(gate_up: Tensor) -> tuple[Tensor, Tensor]:
    """gate_up [T, 2·I] → `quantise_rows` of `silu_mul`. A program per row: for many rows."""
    count, width = len(gate_up), gate_up.shape[-1] // 2
    if gate_up.ndim != 2 or 2 * width != gate_up.shape[1] or not gate_up.is_contiguous():
        raise ValueError(f"gate_up {list(gate_up.shape)}; allowed: contiguous, [..., 2·I]")
    if width > _LONGEST:
        raise ValueError(f"rows of {width} values; allowed: at most {_LONGEST}")
    q = gate_up.new_empty(count, width, dtype=torch.float8_e4m3fn)
    scale = gate_up.new_empty(count, dtype=torch.float32)
    if count:
        block = triton.next_power_of_2(width)
        warps = min(max(block // 512, 1), 16)
        _float8_kernel[(count,)](
            gate_up, q, scale, width, BLOCK=block, num_warps=warps, **overlap(gate_up)
        )
    return q, scale


@triton.jit
def gate(gate, up):  # type: ignore[no-untyped-def]
    """silu(gate) · up of two tensors in the model's dtype, rounded as the definition rounds."""
    wide = gate.to(tl.float32)
    silu = (wide / (1 + tl.exp(-wide))).to(gate.dtype)
    return (silu.to(tl.float32) * up.to(tl.float32)).to(gate.dtype)


@triton.jit
def _kernel(  # type: ignore[no-untyped-def]
    gate_up_at, out_at, width, BLOCK: tl.constexpr, OVERLAP: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    after_previous(OVERLAP)
    first = gate_up_at + row * 2 * width + columns
    result = gate(tl.load(first, inside, other=0), tl.load(first + width, inside, other=0))
    tl.store(out_at + row * width + columns, result, inside)


@triton.jit
def _float8_kernel(  # type: ignore[no-untyped-def]
    gate_up_at, q_at, scale_at, width, BLOCK: tl.constexpr, OVERLAP: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    after_previous(OVERLAP)
    first = gate_up_at + row * 2 * width + columns
    result = gate(tl.load(first, inside, other=0), tl.load(first + width, inside, other=0))
    wide = result.to(tl.float32)
    scale = scale_of(wide)
    tl.store(q_at + row * width + columns, as_float8(wide, scale), inside)
    tl.store(scale_at + row, scale)
