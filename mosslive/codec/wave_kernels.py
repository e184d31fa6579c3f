"""Which form of the codec's operations runs: the PyTorch definition, or its twin for GPUs.

The twins want the channels of one moment side by side; a signal is brought into that layout where
it enters a network (`entering`), and every operation here keeps it. Invariant: same meaning in
either form; float64 always goes through the definitions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Concatenate, ParamSpec, TypeVar

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


Rest = ParamSpec("Rest")
Result = TypeVar("Result")


def _either(
    definition: Callable[Concatenate[Tensor, Rest], Result], file: str
) -> Callable[Concatenate[Tensor, Rest], Result]:
    """The definition, or the function of its name in that file of `kernels.gpu`, as the first
    argument wants it. Twins are imported when one is needed: they bring Triton."""

    @wraps(definition)
    def chosen(x: Tensor, /, *rest: Rest.args, **named: Rest.kwargs) -> Result:
        if not has_twin(x):
            return definition(x, *rest, **named)
        twin = getattr(import_module(f"mosslive.kernels.gpu.{file}"), definition.__name__)
        result: Result = twin(x, *rest, **named)
        return result

    return chosen


conv1d = _either(plain.conv1d, "conv1d")
conv1d_snake = _either(plain.conv1d_snake, "conv1d")
snake = _either(plain.snake, "snake")
anti_aliased_snake = _either(plain_snake.anti_aliased_snake, "snake")
_very_few_rows_linear = _either(plain_linear.rows_linear, "rows_linear")


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
    linear = _very_few_rows_linear if rows <= _VERY_FEW_ROWS else plain_linear.rows_linear
    return linear(x, weight, bias, residual=residual, gelu=gelu)
