"""The products that begin with a norm: the QKV projection, and the whole feed-forward.

Compositions of the operations they name. Each is one operation, because with float8 the values
between the norm and the product never have to exist in the model's dtype.
"""

from torch import Tensor

from mosslive.kernels.add_rms_norm import add_rms_norm
from mosslive.kernels.linear import Matrix, gated, linear
from mosslive.kernels.rms_norm import rms_norm


def norm_linear(
    hidden: Tensor, delta: Tensor | None, norm: Tensor, eps: float, matrix: Matrix
) -> Tensor:
    """hidden [T, H] += delta [T, H] in place, if there is one; → its norm · matrix [N, H]ᵀ,
    [T, N]."""
    return linear(_normed(hidden, delta, norm, eps), matrix)


def norm_feed_forward(
    hidden: Tensor, delta: Tensor, norm: Tensor, eps: float, gate_up: Matrix, down: Matrix
) -> Tensor:
    """hidden [T, H] += delta in place; → gated product of its norm with gate_up [2·I, H], times
    down [H, I]: [T, H]."""
    return linear(gated(_normed(hidden, delta, norm, eps), gate_up), down)


def _normed(hidden: Tensor, delta: Tensor | None, norm: Tensor, eps: float) -> Tensor:
    if delta is None:
        return rms_norm(hidden, norm, eps)
    return add_rms_norm(hidden, delta, norm, eps)
