"""Triton version of `kernels.norm_products`: float8 inputs are quantised where they are made.

The norm quantises its own result, and so does the gate of many rows, which saves a launch and a
pass over the rows each time. Bits are those of the norm, then `quantise_rows`.
"""

from torch import Tensor

from mosslive.kernels.gpu.linear import Rows, check, feed, product
from mosslive.kernels.gpu.rms_norm import add_rms_norm, norm_float8, rms_norm
from mosslive.kernels.linear import Matrix


def norm_linear(
    hidden: Tensor, delta: Tensor | None, norm: Tensor, eps: float, matrix: Matrix
) -> Tensor:
    """hidden [T, H] += delta in place, if there is one; → its norm · matrix [N, H]ᵀ, [T, N]."""
    check(hidden, matrix)
    return product(_normed(hidden, delta, norm, eps, matrix), matrix)


def norm_feed_forward(
    hidden: Tensor, delta: Tensor, norm: Tensor, eps: float, gate_up: Matrix, down: Matrix
) -> Tensor:
    """hidden [T, H] += delta in place; → gated product of its norm, times down: [T, H]."""
    check(hidden, gate_up, gated=True)
    return feed(_normed(hidden, delta, norm, eps, gate_up), gate_up, down)


def _normed(hidden: Tensor, delta: Tensor | None, norm: Tensor, eps: float, to: Matrix) -> Rows:
    if to.scale is not None:
        return Rows(*norm_float8(hidden, delta, norm, eps), hidden.dtype)
    if delta is None:
        return Rows(rms_norm(hidden, norm, eps), None, hidden.dtype)
    return Rows(add_rms_norm(hidden, delta, norm, eps), None, hidden.dtype)
