"""One step of BigVGAN over a mel that still grows: every layer computes each of its samples once.

A centred layer cannot finish its last samples before it has seen the samples that follow. It
therefore stores the inputs that it needs again, and where signals are added, all wait for the
slowest. The number of stored inputs says how far a layer is. Before its first and after its last
sample a layer applies its own padding, as offline. Knows kinds of layers, not the structure of the
network. Invariant: the samples of all steps and of `rest`, in order, are the offline samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn

from mosslive.codec.bigvgan.network import BigVganNetwork
from mosslive.codec.bigvgan.snake import SNAKE_REACH_SAMPLES, AntiAliasedSnake
from mosslive.codec.convolution import Convolution, Upsampling
from mosslive.kernels.conv1d import join
from mosslive.kernels.dispatch import Dispatch


@dataclass(frozen=True)
class BigVganState:
    """The state between two steps. A step returns a new state and leaves the old one valid."""

    kept: tuple[Tensor, ...] = ()  # [B, C, n] each, in the order of the layers; empty at the start
    samples: int = 0  # exact samples that were computed


class _Step:
    """Runs layers over new samples only. A layer returns what it can finish, possibly nothing."""

    def __init__(
        self, kept: tuple[Tensor, ...], dispatch: Dispatch, at_end: bool, copies: bool = True
    ) -> None:
        self._dispatch = dispatch
        self._kept = iter(kept) if kept else None
        self._at_end, self._copies = at_end, copies
        self.keep: list[Tensor] = []

    def layer(self, module: nn.Module, x: Tensor) -> Tensor:
        if isinstance(module, Convolution):
            return self._convolve(module, x)
        if isinstance(module, Upsampling):
            rate, crop = module.stride[0], int(module.padding[0])
            inputs = -(-2 * crop // rate)  # those that overlap the next: kernel = rate + 2 · crop
            return self._windowed(module, x, module.out_channels, rate, crop, inputs)
        assert isinstance(module, AntiAliasedSnake), module
        edge = SNAKE_REACH_SAMPLES
        return self._windowed(module, x, x.shape[1], 1, edge, 2 * edge)

    def add(self, conv: Convolution, x: Tensor, parts: Sequence[Tensor], scale: float) -> Tensor:
        window = self._window_of(conv, x)
        edge = _edge(conv)
        new = max(0, window.shape[-1] - 2 * edge)  # samples the convolution finishes
        kept = self._take(x[:, : conv.out_channels])  # finished before, but an addend was late
        windows = [join((self._take(part), part)) for part in parts]
        ready = min(kept.shape[-1] + new, *(each.shape[-1] for each in windows))
        addends = [each[..., :ready] for each in windows]
        if not kept.shape[-1] and new == ready > 0:  # always so once the layers are full
            result: Tensor = conv(window, padding=0, addends=addends, scale=scale)
            self._keep(kept, 0)
        else:
            fresh = conv(window, padding=0) if new else self._zeros(x, conv.out_channels, 0)
            both = join((kept, fresh))
            result = scale * reduce(torch.add, addends, both[..., :ready])
            self._keep(both, both.shape[-1] - ready)
        for each in windows:  # stored in the order in which they were taken
            self._keep(each, each.shape[-1] - ready)
        return result

    def _convolve(self, conv: Convolution, x: Tensor) -> Tensor:
        window = self._window_of(conv, x)
        if window.shape[-1] <= 2 * _edge(conv):
            return self._zeros(x, conv.out_channels, 0)
        result: Tensor = conv(window, padding=0)
        return result

    def _window_of(self, conv: Convolution, x: Tensor) -> Tensor:
        """The layer's input without its own padding: zeros before the first and after the last
        input."""
        edge = _edge(conv)
        parts = [self._take(x, edge), x]
        if self._at_end:
            parts.append(self._zeros(x, x.shape[1], edge))
        window = join(parts)
        self._keep(window, 2 * edge)
        return window

    def _windowed(
        self, module: nn.Module, x: Tensor, channels: int, rate: int, open_end: int, inputs: int
    ) -> Tensor:
        """For layers that pad their ends themselves. Runs on the new inputs and on the `inputs`
        stored ones. Cuts off the outputs that were returned before and the `open_end` outputs that
        later inputs still change."""
        kept = self._take(x)
        window = join((kept, x))
        self._keep(window, inputs)
        given = max(0, kept.shape[-1] * rate - open_end)
        ready = window.shape[-1] * rate - (0 if self._at_end else open_end)
        if ready <= given:
            return self._zeros(x, channels, 0)
        result: Tensor = module(window)[..., given:ready]
        return result

    def _take(self, x: Tensor, zeros: int = 0) -> Tensor:
        """The stored inputs of this layer; at the start `zeros` zeros."""
        if self._kept is None:
            return self._zeros(x, x.shape[1], zeros)
        return next(self._kept)

    def _keep(self, window: Tensor, count: int) -> None:
        if not self._at_end:
            kept = window[..., max(0, window.shape[-1] - count) :]
            # A view would keep the whole window in memory until the next step.
            self.keep.append(kept.clone() if self._copies else kept)

    def _zeros(self, like: Tensor, channels: int, count: int) -> Tensor:
        zeros = like.new_zeros(like.shape[0], channels, count)
        return self._dispatch(zeros).signal_layout(zeros)


def _edge(conv: Convolution) -> int:
    return conv.dilation[0] * (conv.kernel_size[0] - 1) // 2


def advance(
    network: BigVganNetwork, state: BigVganState, mel: Tensor, copies: bool = True
) -> tuple[Tensor, BigVganState]:
    """The next frames [B, bands, n], n ≥ 0 → the samples [B, s] that are now exact, and the new
    state. Once a few chunks of one size have filled the layers, all shapes repeat. With
    `copies=False` the new state holds views, for a caller that copies it itself."""
    step = _Step(state.kept, network.dispatch, at_end=False, copies=copies)
    wave = network.compute(mel, step)
    return wave, BigVganState(tuple(step.keep), state.samples + wave.shape[-1])


def rest(network: BigVganNetwork, state: BigVganState, mel: Tensor) -> Tensor:
    """All samples [B, s] that follow if the mel ends with these frames [B, bands, n], n ≥ 0."""
    return network.compute(mel, _Step(state.kept, network.dispatch, at_end=True))
