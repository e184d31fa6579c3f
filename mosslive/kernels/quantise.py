"""Rows as float8 e4m3 with one float32 scale each.

For activations a row is a position, for weights an output channel. Knows nothing of products.
Invariant: q · scale is the row, each value within half a step of e4m3 at its size.
"""

import torch
from torch import Tensor

LARGEST = 448.0  # of e4m3: there is no infinity above it, so a row is scaled to end exactly here
# A row of zeros, or of values too small to divide by, keeps a scale that float32 can still invert.
SMALLEST_SCALE = 2.0**-100


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [T, K] → q float8_e4m3fn [T, K], scale float32 [T]: max|row| / 448, never 0. A row with NaN
    has the scale NaN, one with infinity an infinite one: what is wrong stays visible."""
    wide = x.float()
    largest = wide.abs().amax(dim=-1)
    # A tensor, not a number: by a number CUDA multiplies with the inverse, which rounds otherwise.
    scale = (largest / torch.full_like(largest, LARGEST)).clamp(min=SMALLEST_SCALE)
    scaled = (wide * scale.reciprocal()[:, None]).clamp(-LARGEST, LARGEST)  # may round above
    return scaled.to(torch.float8_e4m3fn), scale
