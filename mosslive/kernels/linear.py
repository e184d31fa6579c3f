"""Products of rows with a weight matrix, as the model stores it: in its own dtype, or in float8.

Knows nothing of layers. Invariant: sums are float32 whatever the storage, and the result is rounded
once, to the dtype of the rows; another implementation may differ by the order of summing only.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.kernels.arithmetic import disable_onednn_on_arm, sum_in_float32
from mosslive.kernels.quantise import quantise_rows
from mosslive.kernels.silu_mul import silu_mul

# Every computation imports this module, so this happens before any capture and any step.
sum_in_float32()
disable_onednn_on_arm()


@dataclass(frozen=True)
class Matrix:
    """A weight of N output channels by K inputs; with float8, one scale per output channel."""

    weight: Tensor  # [N, K], the model's dtype or float8_e4m3fn
    scale: Tensor | None = None  # [N] float32 with float8, else None

    def __post_init__(self) -> None:
        if self.weight.ndim != 2:
            raise ValueError(f"a weight of shape {list(self.weight.shape)}; allowed: [N, K]")
        if (self.weight.dtype == torch.float8_e4m3fn) != (self.scale is not None):
            raise ValueError(
                f"a weight of {self.weight.dtype}, scale given: {self.scale is not None}; allowed: "
                "a scale with float8_e4m3fn only"
            )
        if self.scale is not None and (
            self.scale.shape != self.weight.shape[:1] or self.scale.dtype != torch.float32
        ):
            raise ValueError(
                f"scale {list(self.scale.shape)} {self.scale.dtype} for "
                f"{list(self.weight.shape)}: one float32 per output channel is needed"
            )


def linear(x: Tensor, matrix: Matrix) -> Tensor:
    """x [T, K] · matrix [N, K]ᵀ → [T, N] in x's dtype. With a float8 matrix the rows of x become
    float8 too (`quantise_rows`), and both scales multiply the float32 sum."""
    if matrix.scale is None:
        return F.linear(x, matrix.weight)
    q, row_scale = quantise_rows(x)
    sums = q.float() @ matrix.weight.float().T  # [T, N]
    return (sums * row_scale[:, None] * matrix.scale).to(x.dtype)


def gated(x: Tensor, matrix: Matrix) -> Tensor:
    """x [T, K], matrix of gate rows then up rows [2·I, K] → silu(gate) · up [T, I]."""
    return silu_mul(linear(x, matrix))
