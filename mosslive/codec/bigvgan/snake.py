"""One anti-aliased snake as a module: its tensors under their published names, and its filter.

`kernels.snake` defines what it computes; `kernels.dispatch` chooses the implementation.
Knows nothing of the networks around it.
"""

import math

import torch
from torch import Tensor, nn

from mosslive.kernels.dispatch import AUTO, Dispatch
from mosslive.kernels.snake import SNAKE_REACH_SAMPLES, TAPS

__all__ = ["SNAKE_REACH_SAMPLES", "AntiAliasedSnake", "sinc_filter"]

_KAISER_BETA = 0.1102 * (2.285 * (TAPS // 2 - 1) * math.pi * 1.2 + 7.95 - 8.7)  # 4.6638


def sinc_filter() -> Tensor:
    """Half-band low-pass, a Kaiser-windowed sinc with sum 1, [1, 1, 12]."""
    wide = torch.float64
    time = torch.arange(TAPS, dtype=wide) - (TAPS - 1) / 2
    window = torch.kaiser_window(TAPS, periodic=False, beta=_KAISER_BETA, dtype=wide)
    taps = window * torch.sinc(time / 2)
    return (taps / taps.sum()).float().view(1, 1, TAPS)


class _Filter(nn.Module):
    filter: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filter", sinc_filter())


class _Downsample(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lowpass = _Filter()


class AntiAliasedSnake(nn.Module):
    """The tensors of one activation; the published files store both filters with each."""

    def __init__(self, channels: int, log_scale: bool, dispatch: Dispatch = AUTO) -> None:
        super().__init__()
        self.dispatch = dispatch
        self.log_scale = log_scale
        start = torch.zeros if log_scale else torch.ones
        self.act = nn.ParameterDict({"alpha": start(channels), "beta": start(channels)})
        self.upsample = _Filter()
        self.downsample = _Downsample()

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, T] → [B, C, T]"""
        return self.dispatch(x).anti_aliased_snake(
            x,
            self.act["alpha"],
            self.act["beta"],
            self.upsample.filter,
            self.downsample.lowpass.filter,
            log_scale=self.log_scale,
        )
