"""Twin of `kernels.silu_mul`, for products that come from the vendor's library.

Where our own kernel computes the product, the gate is its last line (`linear.gated`).
"""

import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import after_previous, overlap

_BLOCK = 1024


def silu_mul(gate_up: Tensor) -> Tensor:
    """gate_up [..., 2·I], gate first → [..., I]. silu is rounded to the dtype first."""
    if gate_up.shape[-1] % 2 or not gate_up.is_contiguous():
        raise ValueError(f"needs contiguous gates and ups in pairs, not {list(gate_up.shape)}")
    width = gate_up.shape[-1] // 2
    out = gate_up.new_empty(*gate_up.shape[:-1], width)
    if out.numel():
        grid = (out.numel() // width, triton.cdiv(width, _BLOCK))
        _kernel[grid](gate_up, out, width, BLOCK=_BLOCK, num_warps=4, **overlap(gate_up))
    return out


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
