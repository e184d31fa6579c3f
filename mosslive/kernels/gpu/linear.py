"""Triton version of `kernels.linear`; the number of rows decides which kernel multiplies.

Few rows: our own kernels, which only stream the matrix. Many rows: cuBLAS, which also keeps the
tensor cores busy. Knows nothing of layers.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.kernels.gpu.few_rows import few_rows
from mosslive.kernels.gpu.one_row import one_row
from mosslive.kernels.gpu.quantise import quantise_rows
from mosslive.kernels.gpu.silu_mul import silu_mul, silu_mul_float8
from mosslive.kernels.linear import Matrix

# Microseconds on an H200, in a CUDA graph over different matrices, float8 without the
# quantising of the rows; in brackets cuBLAS, for gates without `silu_mul`:
#                       1 row                     16 rows                   64 rows
#   channels x inputs   bf16        float8        bf16        float8        bf16   float8
#   6144 x 4096         13.4 (15.6)  7.7 (17.8)   15.1 (16.3)  9.5 (17.2)   (16.5)  9.6 (14.5)
#   4096 x 4096          9.6 (12.6)  5.9 (14.7)   11.5 (12.8)  7.5 (14.9)   (12.1)  7.7 (14.1)
#   24576 x 4096 gated  46.5 (49.1) 24.3 (43.3)   48.4 (49.9) 27.1 (44.3)   (52.1) 31.1 (40.9)
#   4096 x 12288        26.1 (30.0) 14.3 (38.6)   26.3 (27.9) 17.0 (33.7)   (31.1) 18.1 (32.6)
# So: rows up to which our kernels are faster, by bytes of a weight; bf16 is equal at 32. Float32 is
# for checks, which use cuBLAS.
_FEW = {1: 64, 2: 32, 4: 1}


class Rows(NamedTuple):
    """The rows that a matrix is multiplied with; for a float8 matrix float8 rows with scales."""

    values: Tensor  # [T, K]
    scale: Tensor | None  # [T] float32
    dtype: torch.dtype  # of the result


def linear(x: Tensor, matrix: Matrix) -> Tensor:
    """x [T, K] · matrix [N, K]ᵀ → [T, N] in x's dtype; see the definition for float8."""
    check(x, matrix)
    return product(_rows(x, matrix), matrix)


def gated(x: Tensor, matrix: Matrix) -> Tensor:
    """x [T, K], matrix of gate rows then up rows [2·I, K] → silu(gate) · up [T, I]."""
    check(x, matrix, gated=True)
    return product(_rows(x, matrix), matrix, gated=True)


def feed(rows: Rows, gate_up: Matrix, down: Matrix) -> Tensor:
    """linear(gated(rows, gate_up), down). Shapes are checked by the caller."""
    if down.scale is not None and _uses_cublas(rows, gate_up):
        inner = Rows(*silu_mul_float8(product(rows, gate_up)), rows.dtype)
        return product(inner, down)
    return linear(product(rows, gate_up, gated=True), down)


def _rows(x: Tensor, matrix: Matrix) -> Rows:
    if matrix.scale is None:
        return Rows(x, None, x.dtype)
    return Rows(*quantise_rows(x), x.dtype)


def product(rows: Rows, matrix: Matrix, gated: bool = False) -> Tensor:
    """As `linear` or `gated`. Shapes are checked by the caller."""
    weight, scale = matrix.weight, matrix.scale
    x, row_scale, dtype = rows
    if len(x) == 0:
        return x.new_empty(0, len(weight) // (1 + gated), dtype=dtype)
    if len(x) == 1:
        return one_row(x, row_scale, weight, scale, dtype, gated)
    if not _uses_cublas(rows, matrix):
        return few_rows(x, row_scale, weight, scale, dtype, gated)
    if scale is None:
        result = F.linear(x, weight)
    else:
        assert row_scale is not None
        # Fast accumulation would keep sums in fewer bits than float32: measured, it nearly doubles
        # the error of a bf16 result.
        result = torch._scaled_mm(
            x, weight.T, row_scale[:, None], scale[None], out_dtype=dtype, use_fast_accum=False
        )
    return silu_mul(result) if gated else result


def _uses_cublas(rows: Rows, matrix: Matrix) -> bool:
    """Whether cuBLAS is faster. Its float8 product exists on GPUs, for bf16 results and sizes that
    are multiples of 16."""
    if len(rows.values) <= _FEW[matrix.weight.element_size()]:
        return False
    if matrix.scale is None:
        return True
    fits = not any(n % 16 for n in matrix.weight.shape)
    return rows.values.is_cuda and rows.dtype == torch.bfloat16 and fits


def check(x: Tensor, matrix: Matrix, gated: bool = False) -> None:
    weight, scale = matrix.weight, matrix.scale
    if x.ndim != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(f"rows {list(x.shape)} for a matrix {list(weight.shape)}")
    if scale is None and weight.dtype != x.dtype:
        raise ValueError(f"rows of {x.dtype} for a matrix of {weight.dtype}")
    tensors = [x, weight] if scale is None else [x, weight, scale]
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise ValueError("rows, weights and scales must be contiguous")
    if any(tensor.device != x.device for tensor in tensors):
        raise ValueError(f"rows on {x.device}, weights on {weight.device}")
    if gated and len(weight) % 2:
        raise ValueError(f"{len(weight)} channels of gates and ups; allowed: an even number")
