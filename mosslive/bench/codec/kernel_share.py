"""A share of a network's kernels: several processes divide among them what one pass would compile.

Every process walks through the whole network, but runs only the kernels that fall to it, each once;
in place of all other results it takes memory as it lies. Changes the process for good, so it is for
processes that do nothing else. Invariant: shares do not overlap, and together they are everything.
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from mosslive.kernels import conv1d as plain
from mosslive.kernels import snake as plain_snake


def take_share(share: int, shares: int) -> None:
    """From now on in this process, the twins of the vocoders' operations."""
    from mosslive.kernels.gpu import conv1d as convolutions
    from mosslive.kernels.gpu import snake as snakes

    seen: dict[Hashable, int] = {}  # kernels in the order in which they are first asked for
    ran: set[Hashable] = set()

    def divided(
        definition: Callable[..., Any],
        twin: Callable[..., Any],
        kernel: Callable[..., Hashable],
    ) -> Callable[..., Any]:
        def chosen(x: Tensor, *rest: Any, **named: Any) -> Any:
            shapes = definition(*map(_shape, (x, *rest)), **{k: _shape(named[k]) for k in named})
            asked = (definition.__name__, x.dtype, kernel(x, shapes, *rest, **named))
            size = x.numel().bit_length()  # some twins have a kernel for each order of magnitude
            if seen.setdefault(asked, len(seen)) % shares == share and (asked, size) not in ran:
                ran.add((asked, size))
                twin(x, *rest, **named)
            return _memory(shapes, x.device)

        return chosen

    def convolution(
        x: Tensor, shapes: Any, weight: Tensor, bias: Any, *_: Any, **named: Any
    ) -> Any:
        batch, outputs, times = (shapes[0] if isinstance(shapes, tuple) else shapes).shape
        inputs, taps = weight.shape[1:]
        tiles = convolutions.choose_tiles(batch * times, inputs, outputs, taps, x.dtype)
        return inputs, outputs, tiles, bias is None, named.get("activation")

    def channels(x: Tensor, *_: Any, **__: Any) -> Hashable:
        return x.shape[1]

    for module, definition, kernel in (
        (convolutions, plain.conv1d, convolution),
        (convolutions, plain.conv1d_snake, convolution),
        (snakes, plain.snake, channels),
        (snakes, plain_snake.anti_aliased_snake, channels),
    ):
        name = definition.__name__
        setattr(module, name, divided(definition, getattr(module, name), kernel))


def _shape(value: Any) -> Any:
    """Tensors, or lists of them, without their values."""
    if isinstance(value, Tensor):
        return value.to("meta")
    return [*map(_shape, value)] if isinstance(value, list | tuple) else value


def _memory(shapes: Any, device: torch.device) -> Any:
    """Results of these shapes, the channels of one moment side by side."""
    if isinstance(shapes, tuple):
        return tuple(_memory(each, device) for each in shapes)
    batch, channels, times = shapes.shape
    memory = torch.empty(batch, times, channels, dtype=shapes.dtype, device=device)
    return memory.transpose(1, 2)
