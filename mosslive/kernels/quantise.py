"""Rows as float8 e4m3 with one float32 scale each.

For activations a row is a position, for weights an output channel. Knows nothing of products.
Invariant: q · scale is the row, each value within half an e4m3 step of its magnitude.
"""

import torch
from torch import Tensor

LARGEST = (
    448.0  # of e4m3, which has no infinity: the largest value of a row is scaled to exactly this
)
# For a row of zeros or of tiny values: a scale that float32 can still invert.
SMALLEST_SCALE = 2.0**-100


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [T, K] → q float8_e4m3fn [T, K], scale float32 [T]: max|row| / 448, never 0. A row with NaN
    has the scale NaN, one with infinity an infinite scale, so that the fault stays visible."""
    wide = x.float()
    largest = wide.abs().amax(dim=-1)
    # A tensor, not a number: CUDA would multiply with a number's reciprocal and round differently.
    scale = (largest / torch.full_like(largest, LARGEST)).clamp(min=SMALLEST_SCALE)
    scaled = (wide * scale.reciprocal()[:, None]).clamp(-LARGEST, LARGEST)  # may round above
    return scaled.to(torch.float8_e4m3fn), scale
