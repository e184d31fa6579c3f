"""Triton version of `kernels.rows_linear`; the number of rows decides which kernel runs.

The kernel here is for so few rows that reading the weight takes all the time. Each program reads
some rows of the weight once, in wide pieces, multiplies and adds on the ordinary units in float32
(exactly: no TF32), and sums across only at the end. Many small programs per SM keep the memory
busy.
"""

import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels import rows_linear as definition
from mosslive.kernels.conv1d import Activation
from mosslive.kernels.gpu.conv1d import conv1d
from mosslive.kernels.gpu.overlap import after_previous, overlap

_GEMV_ROWS = 8  # up to here reading the weight takes longer than multiplying
_CONV_ROWS = 64  # above this, cuBLAS is faster
_COLUMNS = 4  # output channels of a program
_DEPTHS = {4: 512, 8: 256}  # values of a weight's row at once, by rows of x that share them


def rows_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    residual: Tensor | None = None,
    gelu: bool = False,
) -> Tensor:
    """As the definition; all tensors contiguous."""
    rows = x.shape[0] * x.shape[1]
    if rows <= _GEMV_ROWS:
        return few_rows_linear(x, weight, bias, residual=residual, gelu=gelu)
    if rows > _CONV_ROWS or (residual is not None and residual.dtype != x.dtype):
        return definition.rows_linear(x, weight, bias, residual=residual, gelu=gelu)
    addends = () if residual is None else (residual.transpose(1, 2),)  # a convolution of one tap
    activation: Activation | None = "gelu" if gelu else None
    signal, taps = x.transpose(1, 2), weight[..., None]
    return conv1d(signal, taps, bias, addends=addends, activation=activation).transpose(1, 2)


def few_rows_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    residual: Tensor | None = None,
    gelu: bool = False,
) -> Tensor:
    """x [B, t, I], weight [O, I], bias [O], all contiguous → [B, t, O], for any number of rows."""
    batch, times, inputs = x.shape
    outputs = weight.shape[0]
    if weight.shape != (outputs, inputs) or bias.shape != (outputs,):
        raise ValueError(
            f"weight {list(weight.shape)}, bias {list(bias.shape)} for {inputs} inputs"
        )
    y = (x if residual is None else residual).new_empty(batch, times, outputs)
    if residual is not None and (residual.shape != y.shape or not residual.is_contiguous()):
        raise ValueError(f"residual {list(residual.shape)}; allowed: contiguous {list(y.shape)}")
    for tensor in (x, weight, bias):
        if not tensor.is_contiguous() or tensor.dtype != x.dtype:
            raise ValueError("all tensors must be contiguous and of one dtype")
    rows = batch * times
    if not rows:
        return y
    shared = 4 if rows <= 4 else 8
    _kernel[(triton.cdiv(outputs, _COLUMNS), triton.cdiv(rows, shared))](
        x, weight, bias, x if residual is None else residual, y, rows,
        INPUTS=inputs, OUTPUTS=outputs, RESIDUAL=residual is not None, GELU=gelu,
        ROWS=shared, COLUMNS=_COLUMNS, DEPTH=_DEPTHS[shared], num_warps=4, **overlap(x),
    )  # fmt: skip
    return y


@triton.jit(do_not_specialize=("rows",))
def _kernel(  # type: ignore[no-untyped-def]
    x_at, weight_at, bias_at, residual_at, y_at, rows,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, RESIDUAL: tl.constexpr, GELU: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    after_previous(OVERLAP)
    total = tl.zeros((ROWS, COLUMNS, DEPTH), tl.float32)
    for begin in range(0, INPUTS, DEPTH):
        k = begin + tl.arange(0, DEPTH)
        inside = (column < OUTPUTS)[:, None] & (k < INPUTS)[None, :]
        w = tl.load(weight_at + column[:, None] * INPUTS + k[None, :], inside, other=0)
        there = (row < rows)[:, None] & (k < INPUTS)[None, :]
        x = tl.load(x_at + row[:, None] * INPUTS + k[None, :], there, other=0)
        total += x.to(tl.float32)[:, None, :] * w.to(tl.float32)[None, :, :]
    y = tl.sum(total, 2)
    y += tl.load(bias_at + column, column < OUTPUTS, other=0).to(tl.float32)[None, :]
    place = row[:, None] * OUTPUTS + column[None, :]
    inside = (row < rows)[:, None] & (column < OUTPUTS)[None, :]
    if RESIDUAL:
        y += tl.load(residual_at + place, inside, other=0).to(tl.float32)
    if GELU:
        y = 0.5 * y * (1 + tl.erf(y * 0.7071067811865476))
    tl.store(y_at + place, y.to(y_at.dtype.element_ty), inside)
