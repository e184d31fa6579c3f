"""The sums of a convolution over time, computed in the way that is fast on the signal's device.

PyTorch's dilated convolutions on a CPU are fast only through oneDNN; without it they read a signal
tap by tap. There the windows are unfolded instead, and all taps are one product. Knows neither what
follows a convolution nor streams. Invariant: the sums of `F.conv1d`, in another order.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.kernels.trace import is_tracing

# Values that are unfolded at a time, 4 MB: a long signal is computed piece by piece.
_MOST_VALUES = 1 << 20


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: int = 1,
    dilation: int = 1,
    padding: int = 0,
) -> Tensor:
    """x [B, I, T], weight [O, I, K], bias [O], zeros beyond the ends → [B, O, T'] with
    T' = (T + 2 · padding - dilation · (K - 1) - 1) // stride + 1."""
    plain = x.device.type != "cpu" or dilation == 1 or _has_onednn()
    form = F.conv1d if plain else convolve_by_products
    return form(x, weight, bias, stride=stride, dilation=dilation, padding=padding)


def _has_onednn() -> bool:
    onednn: Any = torch.backends.mkldnn  # it has no types
    return bool(onednn.is_available() and onednn.enabled)


def convolve_by_products(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: int = 1,
    dilation: int = 1,
    padding: int = 0,
) -> Tensor:
    """The same, as one product for each row of the batch and piece of the signal. Within a trace
    there is one piece, because the number of pieces would be a constant of the trace, wrong for
    signals of other lengths. Traced signals must therefore be short."""
    span = dilation * (weight.shape[2] - 1) + 1
    padded = F.pad(x, (padding, padding))
    windows = padded.unfold(2, span, stride)[..., ::dilation].transpose(2, 3)  # [B, I, K, T']
    matrix = weight.flatten(1)  # [O, I · K]
    addend = x.new_zeros(1) if bias is None else bias[:, None]
    most = max(1, _MOST_VALUES // matrix.shape[1])
    rows = []
    for row in windows:
        pieces = (row,) if is_tracing() else row.split(most, dim=2)
        products = [torch.addmm(addend, matrix, piece.flatten(0, 1)) for piece in pieces]
        rows.append(torch.cat(products, dim=1))
    return torch.stack(rows)
