"""Residual add and RMS norm: add a block's output to the residual stream, normalise the sum.

One operation, because at one row per step two would cost two launches and read the row twice.
"""

from torch import Tensor

from mosslive.kernels.rms_norm import rms_norm


def add_rms_norm(hidden: Tensor, delta: Tensor, weight: Tensor, eps: float) -> Tensor:
    """hidden [T, H] += delta [T, H] in place, rounded to its dtype; → rms_norm of it [T, H]."""
    hidden += delta
    return rms_norm(hidden, weight, eps)
