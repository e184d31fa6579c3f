"""Which form of the codec's operations runs: the PyTorch definition, or its twin for GPUs.

The twins want the channels of one moment side by side; a signal is brought into that layout where
it enters a network (`entering`), and every operation here keeps it. Invariant: same meaning in
either form; float64 always goes through the definitions.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from mosslive.kernels import conv1d as plain
from mosslive.kernels import rows_linear as plain_linear
from mosslive.kernels import snake as plain_snake
from mosslive.kernels.conv1d import Activation, channels_together

_VERY_FEW_ROWS = 8  # below, a weight is read faster than multiplied
_FEW_ROWS = 64  # above, the vendor's products are the faster ones
_TWINS = (torch.float32, torch.float16, torch.bfloat16)


_definitions_only = False


def has_twin(x: Tensor) -> bool:
    return x.is_cuda and x.dtype in _TWINS and not _definitions_only


@contextmanager
def definitions_only() -> Iterator[None]:
    """Inside, nothing runs through a twin, on any device: to compare against. Weights that a twin
    has used lie in its order in memory and make the definitions slower, not different."""
    global _definitions_only
    before, _definitions_only = _definitions_only, True
    try:
        yield
    finally:
        _definitions_only = before


def entering(x: Tensor) -> Tensor:
    """x [B, C, T] in the layout in which this device computes."""
    return channels_together(x) if has_twin(x) else x


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
    """See `kernels.conv1d`."""
    function = plain.conv1d
    if has_twin(x):
        from mosslive.kernels.gpu.conv1d import conv1d as function
    return function(
        x,
        weight,
        bias,
        stride=stride,
        dilation=dilation,
        padding=padding,
        addends=addends,
        scale=scale,
        activation=activation,
        slope=slope,
        alpha=alpha,
    )


def conv1d_snake(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    alpha: Tensor,
    *,
    dilation: int,
    padding: int,
    addends: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor]:
    """See `kernels.conv1d`."""
    function = plain.conv1d_snake
    if has_twin(x):
        from mosslive.kernels.gpu.conv1d import conv1d_snake as function
    return function(x, weight, bias, alpha, dilation=dilation, padding=padding, addends=addends)


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    """See `kernels.conv1d`."""
    function = plain.snake
    if has_twin(x):
        from mosslive.kernels.gpu.snake import snake as function
    return function(x, alpha)


def anti_aliased_snake(
    x: Tensor,
    alpha: Tensor,
    beta: Tensor,
    up_filter: Tensor,
    down_filter: Tensor,
    *,
    log_scale: bool,
) -> Tensor:
    """See `kernels.snake`."""
    function = plain_snake.anti_aliased_snake
    if has_twin(x):
        from mosslive.kernels.gpu.snake import anti_aliased_snake as function
    return function(x, alpha, beta, up_filter, down_filter, log_scale=log_scale)


def rows_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    residual: Tensor | None = None,
    gelu: bool = False,
) -> Tensor:
    """See `kernels.rows_linear`."""
    rows = x.shape[0] * x.shape[1]
    if has_twin(x) and _VERY_FEW_ROWS < rows <= _FEW_ROWS:  # a convolution of one tap
        addends = () if residual is None else (residual.transpose(1, 2),)
        activation: Activation | None = "gelu" if gelu else None
        signal, taps = x.transpose(1, 2), weight[..., None]
        y = conv1d(signal, taps, bias, addends=addends, activation=activation)
        return y.transpose(1, 2)
    function = plain_linear.rows_linear
    if has_twin(x) and rows <= _VERY_FEW_ROWS:
        from mosslive.kernels.gpu.rows_linear import rows_linear as function
    return function(x, weight, bias, residual=residual, gelu=gelu)
