"""A convolution over time with what follows it in a vocoder: bias, sums, activation.

Knows no network and no stream. Shapes are [B, C, T]; the memory layout is the caller's choice, and
the Triton kernel needs the channels of one moment adjacent (`channels_together`). Invariant: sums
are those of `F.conv1d`; another implementation may differ by the order of summing and may round
less often.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.kernels.convolve import convolve

Activation = Literal["gelu", "elu", "leaky", "snake"]

_TINY = 1e-9


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    stride: int = 1,
    dilation: int = 1,
    padding: int = 0,
    addends: Sequence[Tensor] = (),
    scale: float = 1.0,
    activation: Activation | None = None,
    slope: float = 0.0,
    alpha: Tensor | None = None,
) -> Tensor:
    """x [B, I, T], weight [O, I, K], bias [O], zeros beyond the ends → activation((convolution +
    all addends) · scale), [B, O, T'] with T' = (T + 2 · padding - dilation · (K - 1) - 1) // stride
    + 1. At most three addends, of that shape. `slope`: of "leaky", below zero; `alpha` [O]: of
    "snake"."""
    y = convolve(x, weight, bias, stride=stride, dilation=dilation, padding=padding)
    for addend in addends:
        y = y + addend
    if scale != 1:
        y = y * scale
    if activation == "gelu":
        return F.gelu(y)
    if activation == "elu":
        return F.elu(y)
    if activation == "snake":
        assert alpha is not None, "activation 'snake' needs alpha"
        return snake(y, alpha)
    return F.leaky_relu(y, slope) if activation == "leaky" else y


def conv1d_snake(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    alpha: Tensor,
    *,
    dilation: int = 1,
    padding: int = 0,
    addends: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor]:
    """`conv1d`, and the plain snake of it."""
    y = conv1d(x, weight, bias, dilation=dilation, padding=padding, addends=addends)
    return y, snake(y, alpha)


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    """x [B, C, T], alpha [C] → x + sin²(α x) / (α + 1e-9), in the wider type and rounded to that
    of x."""
    alpha = alpha[:, None]
    return torch.addcdiv(x, (alpha * x).sin().square(), alpha + _TINY).to(x.dtype)


def upsampling_as_conv1d(weight: Tensor, rate: int, crop: int) -> Tensor:
    """The weight [I, O, K] of a transposed convolution that gives `rate` samples for each one, as
    that of a plain one [rate · O, I, taps] whose channels are the samples between two inputs."""
    inputs, outputs, kernel = weight.shape
    reach = -(-crop // rate)  # inputs on each side that a group of outputs sees
    taps = weight.new_zeros(rate, outputs, inputs, 2 * reach + 1)
    for phase in range(rate):
        for tap in range(2 * reach + 1):
            at = phase + crop - rate * (tap - reach)
            if 0 <= at < kernel:
                taps[phase, :, :, tap] = weight[:, :, at].T
    return taps.flatten(0, 1)


def channels_together(x: Tensor) -> Tensor:
    """The same values [B, C, T] with the channels of one moment adjacent in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def are_channels_together(x: Tensor) -> bool:
    """Whether x [B, C, T] has that layout. The stride of a single channel does not matter."""
    _, channels, times = x.shape
    strides = x.stride()
    return times <= 1 or (strides[2] == channels and (channels == 1 or strides[1] == 1))


def taps_together(weight: Tensor) -> Tensor:
    """The same weight [O, I, K], in memory one row [K, I] for each output channel."""
    return weight.permute(0, 2, 1).contiguous().permute(0, 2, 1)


def are_taps_together(weight: Tensor) -> bool:
    outputs, inputs, taps = weight.shape
    wanted = ((outputs, taps * inputs), (inputs, 1), (taps, inputs))
    return all(
        size == 1 or stride == step
        for (size, step), stride in zip(wanted, weight.stride(), strict=True)
    )


def join(parts: Sequence[Tensor]) -> Tensor:
    """Signals [B, C, T_i] one after the other in time, in the layout of the longest."""
    longest = max(parts, key=lambda part: part.shape[-1])
    if longest.stride(1) == 1 and longest.shape[1] > 1:
        return torch.cat([part.transpose(1, 2) for part in parts], 1).transpose(1, 2)
    return torch.cat(list(parts), -1)
