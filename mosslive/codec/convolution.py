"""Convolutions of the vocoders as modules: published tensors, in the layout of their device.

A weight keeps its shape and name everywhere; on a GPU only its order in memory is changed, once,
when it is first used there. Knows no network. Invariant: the result is that of `nn.Conv1d` or
`nn.ConvTranspose1d` with the same tensors, before addends, scale and activation.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mosslive.kernels.conv1d import (
    Activation,
    are_taps_together,
    taps_together,
    upsampling_as_conv1d,
)
from mosslive.kernels.dispatch import AUTO, Dispatch


class Convolution(nn.Conv1d):
    """Pads with zeros; `padding` must be a number."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        *,
        padding: int = 0,
        dilation: int = 1,
        bias: bool = True,
        dispatch: Dispatch = AUTO,
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding, dilation, bias=bias)
        self.dispatch = dispatch

    def forward(
        self,
        x: Tensor,
        *,
        padding: int | None = None,
        addends: Sequence[Tensor] = (),
        scale: float = 1.0,
        activation: Activation | None = None,
        slope: float = 0.0,
        alpha: Tensor | None = None,
    ) -> Tensor:
        """x [B, I, T] → [B, O, T'], see `kernels.conv1d`. padding: replaces the layer's own."""
        self.settle(x)
        return self.dispatch(x).conv1d(
            x,
            self.weight,
            self.bias,
            stride=self.stride[0],
            dilation=self.dilation[0],
            padding=int(self.padding[0]) if padding is None else padding,
            addends=addends,
            scale=scale,
            activation=activation,
            slope=slope,
            alpha=alpha,
        )

    def with_snake(
        self, x: Tensor, alpha: Tensor, addends: Sequence[Tensor] = ()
    ) -> tuple[Tensor, Tensor]:
        """The result, and the plain snake of it, [B, O, T] each."""
        self.settle(x)
        dilation, padding = self.dilation[0], int(self.padding[0])
        return self.dispatch(x).conv1d_snake(
            x, self.weight, self.bias, alpha, dilation=dilation, padding=padding, addends=addends
        )

    def settle(self, x: Tensor) -> None:
        """Reorders the weight in memory as the kernels for x need it. Idempotent."""
        if self.dispatch(x).is_triton and not are_taps_together(self.weight):
            self.weight = nn.Parameter(taps_together(self.weight), requires_grad=False)


class Upsampling(nn.ConvTranspose1d):
    """`rate` samples for each one; kernel = rate + 2 · crop, so that T give exactly rate · T."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, rate: int, dispatch: Dispatch = AUTO
    ) -> None:
        super().__init__(inputs, outputs, kernel, rate, padding=(kernel - rate) // 2)
        self.dispatch = dispatch
        # The same as a plain convolution: weight, bias, and the place of the weight they came from.
        self._plain: tuple[Tensor, Tensor | None, int] | None = None

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """[B, I, T] → [B, O, rate · T]"""
        kernels = self.dispatch(x)
        if not kernels.is_triton:
            return super().forward(x, output_size)
        weight, bias = self._as_plain()
        y = kernels.conv1d(x, weight, bias, padding=weight.shape[2] // 2)  # [B, rate · O, T]
        groups = y.transpose(1, 2).reshape(len(y), -1, self.out_channels)  # [B, rate · T, O]
        return groups.transpose(1, 2)

    def _as_plain(self) -> tuple[Tensor, Tensor | None]:
        """As a convolution whose channels are the samples between two inputs."""
        origin = self.weight.data_ptr()
        known = self._plain
        if known is None or known[2] != origin or known[0].dtype != self.weight.dtype:
            rate, crop = self.stride[0], int(self.padding[0])
            weight = taps_together(upsampling_as_conv1d(self.weight, rate, crop))
            bias = None if self.bias is None else self.bias.repeat(rate)
            known = self._plain = weight, bias, origin
        return known[:2]


def compute_in(network: nn.Module, dtype: torch.dtype) -> None:
    """Convolutions compute in `dtype` from now on. The tensors of snakes and filters stay as they
    are: they are small, and their rounding is the most audible."""
    for module in network.modules():
        if isinstance(module, Convolution | Upsampling):
            module.to(dtype)
