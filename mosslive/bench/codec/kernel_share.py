"""Splits the kernels of a network among several processes that compile them.

Every process walks through the whole network but runs only its share of the kernels, each once. It
returns uninitialised memory for all other results. Changes the process permanently, so it is for
processes that do nothing else. Invariant: shares do not overlap, and together they are complete.
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from mosslive.kernels.kernel_set import KernelSet


def take_share(share: int, shares: int) -> None:
    """Replaces the vocoders' Triton kernels in this process."""
    from mosslive.kernels.gpu.conv1d import choose_tiles
    from mosslive.kernels.gpu.kernel_set import TritonKernelSet

    seen: dict[Hashable, int] = {}  # kernels in order of first use
    ran: set[Hashable] = set()

    def shared(
        definition: Callable[..., Any],
        gpu: Callable[..., Any],
        kernel: Callable[..., Hashable],
    ) -> Callable[..., Any]:
        def chosen(x: Tensor, *rest: Any, **named: Any) -> Any:
            shapes = definition(*map(_shape, (x, *rest)), **{k: _shape(named[k]) for k in named})
            asked = (definition.__name__, x.dtype, kernel(x, shapes, *rest, **named))
            size = (
                x.numel().bit_length()
            )  # some operations have a kernel for each order of magnitude
            if seen.setdefault(asked, len(seen)) % shares == share and (asked, size) not in ran:
                ran.add((asked, size))
                gpu(x, *rest, **named)
            return _memory(shapes, x.device)

        return chosen

    def convolution(
        x: Tensor, shapes: Any, weight: Tensor, bias: Any, *_: Any, **named: Any
    ) -> Any:
        batch, outputs, times = (shapes[0] if isinstance(shapes, tuple) else shapes).shape
        inputs, taps = weight.shape[1:]
        tiles = choose_tiles(batch * times, inputs, outputs, taps, x.dtype)
        return inputs, outputs, tiles, bias is None, named.get("activation")

    def channels(x: Tensor, *_: Any, **__: Any) -> Hashable:
        return x.shape[1]

    for name, kernel in (
        ("conv1d", convolution),
        ("conv1d_snake", convolution),
        ("snake", channels),
        ("anti_aliased_snake", channels),
    ):
        share_of = shared(getattr(KernelSet, name), getattr(TritonKernelSet, name), kernel)
        setattr(TritonKernelSet, name, staticmethod(share_of))


def _shape(value: Any) -> Any:
    """Returns tensors, or lists of them, on the meta device."""
    if isinstance(value, Tensor):
        return value.to("meta")
    return [*map(_shape, value)] if isinstance(value, list | tuple) else value


def _memory(shapes: Any, device: torch.device) -> Any:
    """Returns uninitialised results of these shapes, channels last in memory."""
    if isinstance(shapes, tuple):
        return tuple(_memory(each, device) for each in shapes)
    batch, channels, times = shapes.shape
    memory = torch.empty(batch, times, channels, dtype=shapes.dtype, device=device)
    return memory.transpose(1, 2)
