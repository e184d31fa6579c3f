"""Twin of `kernels.linear`: which kernel multiplies, by the number of rows.

Few rows: our own, which do nothing but stream the matrix. Many: the vendor's, which also keep the
tensor cores busy. Knows nothing of layers.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.kernels.gpu.few_rows import few_rows
from mosslive.kernels.gpu.one_row import one_row
from mosslive.kernels.gpu.quantise import quantise_rows
from mosslive.kernels.gpu.silu_mul import silu_mul
from mosslive.kernels.linear import Matrix

# Microseconds on an H200, in a graph that runs through different matrices, float8 without the
# quantising of the rows; in brackets the vendor's, for gates without `silu_mul`:
#                       1 row                     16 rows                   64 rows
#   channels x inputs   bf16        float8        bf16        float8        bf16   float8
#   6144 x 4096         13.4 (15.6)  7.7 (17.8)   15.1 (16.3)  9.5 (17.2)   (16.5)  9.6 (14.5)
#   4096 x 4096          9.6 (12.6)  5.9 (14.7)   11.5 (12.8)  7.5 (14.9)   (12.1)  7.7 (14.1)
#   24576 x 4096 gated  46.5 (49.1) 24.3 (43.3)   48.4 (49.9) 27.1 (44.3)   (52.1) 31.1 (40.9)
#   4096 x 12288        26.1 (30.0) 14.3 (38.6)   26.3 (27.9) 17.0 (33.7)   (31.1) 18.1 (32.6)
# So, rows up to which ours are faster, by bytes of a weight; bf16 is level at 32. Float32 is for
# checks, which want the vendor's.
_FEW = {1: 64, 2: 32, 4: 1}


def linear(x: Tensor, matrix: Matrix) -> Tensor:
    """x [T, K] · matrix [N, K]ᵀ → [T, N] in x's dtype; see the definition for float8."""
    _check(x, matrix)
    return _product(x, matrix, gated=False)


def gated(x: Tensor, matrix: Matrix) -> Tensor:
    """x [T, K], matrix of gate rows then up rows [2·I, K] → silu(gate) · up [T, I]."""
    _check(x, matrix)
    if len(matrix.weight) % 2:
        raise ValueError(f"gates and ups come in pairs, not {len(matrix.weight)} channels")
    return _product(x, matrix, gated=True)


def _product(x: Tensor, matrix: Matrix, gated: bool) -> Tensor:
    weight, scale = matrix.weight, matrix.scale
    if len(x) == 0:
        return x.new_empty(0, len(weight) // (1 + gated))
    q, row_scale = (x, None) if scale is None else quantise_rows(x)
    if len(x) == 1:
        return one_row(q, row_scale, weight, scale, x.dtype, gated)
    if len(x) <= _FEW[weight.element_size()] or not _vendor_can(x, matrix):
        return few_rows(q, row_scale, weight, scale, x.dtype, gated)
    if scale is None:
        result = F.linear(x, weight)
    else:
        assert row_scale is not None
        # Fast accumulation would keep sums in fewer bits than float32: measured, it nearly doubles
        # the error of a bf16 result.
        result = torch._scaled_mm(
            q, weight.T, row_scale[:, None], scale[None], out_dtype=x.dtype, use_fast_accum=False
        )
    return silu_mul(result) if gated else result


def _vendor_can(x: Tensor, matrix: Matrix) -> bool:
    """The float8 product exists on GPUs, for bf16 results and sizes in sixteens."""
    if matrix.scale is None:
        return True
    return x.is_cuda and x.dtype == torch.bfloat16 and not any(n % 16 for n in matrix.weight.shape)


def _check(x: Tensor, matrix: Matrix) -> None:
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
