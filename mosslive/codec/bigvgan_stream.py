"""BigVGAN over a mel that is still growing: every layer computes each of its samples once.

A centred layer cannot finish its last samples before it has seen what follows them, so it keeps
the inputs it still needs, and signals that meet again wait for the slowest. What a layer keeps
tells by its length alone how far it is: before its first and after its last sample its own padding
applies, as offline. Does not know the network's structure, only kinds of layers. Invariant: after
n frames exactly hop · max(0, n - look-ahead) samples have come out, hop · n after `finish`.

The exact form waits for the network's whole reach. With less look-ahead, samples are computed as
if the mel ended with the newest frame and are not revised; the exact signal goes on underneath, so
the error of one chunk does not reach the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mosslive.codec.convolution import Convolution, Upsampling
from mosslive.codec.snake import SNAKE_REACH_SAMPLES, AntiAliasedSnake
from mosslive.config import refuse
from mosslive.errors import MossliveError
from mosslive.kernels.conv1d import join
from mosslive.kernels.dispatch import Dispatch

if TYPE_CHECKING:
    from mosslive.codec.bigvgan import BigVgan


@dataclass(frozen=True)
class BigVganState:
    """Where a stream is. A step makes a new state and leaves the old one valid."""

    kept: tuple[Tensor, ...] = ()  # [B, C, n] each, in the order of the walk; none at the start
    samples: int = 0  # the exact ones that have been computed


class _Step:
    """A walk over new samples only. Layers return what they can finish, possibly nothing."""

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
            inputs = -(-2 * crop // rate)  # kernel = rate + 2 · crop: what overlaps the next input
            return self._windowed(module, x, module.out_channels, rate, crop, inputs)
        assert isinstance(module, AntiAliasedSnake), module
        edge = SNAKE_REACH_SAMPLES
        return self._windowed(module, x, x.shape[1], 1, edge, 2 * edge)

    def add(self, conv: Convolution, x: Tensor, parts: Sequence[Tensor], scale: float) -> Tensor:
        window = self._window_of(conv, x)
        edge = _edge(conv)
        new = max(0, window.shape[-1] - 2 * edge)  # samples the convolution finishes
        kept = self._take(x[:, : conv.out_channels])  # finished before, but what they meet was late
        windows = [join((self._take(part), part)) for part in parts]
        ready = min(kept.shape[-1] + new, *(each.shape[-1] for each in windows))
        addends = [each[..., :ready] for each in windows]
        if not kept.shape[-1] and new == ready > 0:  # as always once the layers are full
            result: Tensor = conv(window, padding=0, addends=addends, scale=scale)
            self._keep(kept, 0)
        else:
            fresh = conv(window, padding=0) if new else self._zeros(x, conv.out_channels, 0)
            both = join((kept, fresh))
            result = scale * reduce(torch.add, addends, both[..., :ready])
            self._keep(both, both.shape[-1] - ready)
        for each in windows:  # kept in the order in which they were taken
            self._keep(each, each.shape[-1] - ready)
        return result

    def _convolve(self, conv: Convolution, x: Tensor) -> Tensor:
        window = self._window_of(conv, x)
        if window.shape[-1] <= 2 * _edge(conv):
            return self._zeros(x, conv.out_channels, 0)
        result: Tensor = conv(window, padding=0)
        return result

    def _window_of(self, conv: Convolution, x: Tensor) -> Tensor:
        """What the layer sees, without its own padding: zeros stand before the first and after the
        last input."""
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
        """For layers that treat their ends by themselves: runs on the new inputs and those needed
        again (`inputs`), and cuts off the outputs given before and the `open_end` outputs that
        still change."""
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
        """What was kept for this place in the walk; at the start that many zeros."""
        if self._kept is None:
            return self._zeros(x, x.shape[1], zeros)
        return next(self._kept)

    def _keep(self, window: Tensor, count: int) -> None:
        if not self._at_end:
            kept = window[..., max(0, window.shape[-1] - count) :]
            # A view would hold the whole window in memory until the next step.
            self.keep.append(kept.clone() if self._copies else kept)

    def _zeros(self, like: Tensor, channels: int, count: int) -> Tensor:
        zeros = like.new_zeros(like.shape[0], channels, count)
        return self._dispatch(zeros).signal_layout(zeros)


def _edge(conv: Convolution) -> int:
    return conv.dilation[0] * (conv.kernel_size[0] - 1) // 2


def advance(
    network: "BigVgan", state: BigVganState, mel: Tensor, copies: bool = True
) -> tuple[Tensor, BigVganState]:
    """The next frames [B, bands, n], n ≥ 0 → the samples [B, s] that are now exact, and the state
    after them. Once a few chunks of one size have filled the layers, all shapes repeat. Without
    `copies` the new state is made of views, for a caller that copies it anyway."""
    step = _Step(state.kept, network.dispatch, at_end=False, copies=copies)
    wave = network.compute(mel, step)
    return wave, BigVganState(tuple(step.keep), state.samples + wave.shape[-1])


def rest(network: "BigVgan", state: BigVganState, no_mel: Tensor) -> Tensor:
    """The samples [B, s] that follow if the mel ends here. `no_mel`: [B, bands, 0]."""
    return network.compute(no_mel, _Step(state.kept, network.dispatch, at_end=True))


class BigVganStream:
    """Mel in by `push`, waveform out; `finish` gives the rest. Rows of a batch advance together."""

    def __init__(self, network: "BigVgan", look_ahead_frames: int | None = None) -> None:
        most = network.reach.ahead
        frames = most if look_ahead_frames is None else look_ahead_frames
        if type(frames) is not int or not 0 <= frames <= most:
            raise refuse("look_ahead_frames", frames, f"0..{most}, or None for {most}: exact")
        self.look_ahead_frames = frames
        self._network = network
        self._state = BigVganState()
        self._frames = 0
        self._given = 0  # samples that have come out
        self._held: Tensor | None = None  # [B, s], exact samples that are not due yet
        self._no_mel: Tensor | None = None  # [B, bands, 0]
        self._batched = False
        self._finished = False

    @torch.no_grad()
    def push(self, mel: Tensor | NDArray[Any]) -> Tensor:
        """mel [B, bands, n] or [bands, n], any n → the samples that are due, [B, s] or [s]."""
        self._require_open()
        frames = self._network.accept(mel)
        if self._no_mel is not None and len(frames) != len(self._no_mel):
            rows = len(self._no_mel)
            raise MossliveError(f"a mel of {len(frames)} rows in a stream that has {rows}")
        self._no_mel, self._batched = frames[..., :0], mel.ndim == 3
        fresh, self._state = self._network.advance(self._state, frames)
        self._hold(fresh)
        self._frames += frames.shape[-1]
        return self._give(self._network.hop * max(0, self._frames - self.look_ahead_frames))

    @torch.no_grad()
    def finish(self) -> Tensor:
        """The samples [B, s] or [s] that were held back. The stream is closed afterwards."""
        self._require_open()
        self._finished = True
        if self._no_mel is None:
            return torch.zeros(0)
        fresh = rest(self._network, self._state, self._no_mel)
        self._state = BigVganState(samples=self._state.samples + fresh.shape[-1])
        self._hold(fresh)
        return self._give(self._network.hop * self._frames)

    def _give(self, until: int) -> Tensor:
        """Samples up to `until`, of which those beyond the exact ones are taken as if the mel ended
        here; they are not kept, so that nothing inexact stays in the stream."""
        wave = self._held
        assert wave is not None
        first = self._state.samples - wave.shape[-1]
        self._held = wave[:, until - first :]
        if until > max(self._given, self._state.samples):
            assert self._no_mel is not None
            wave = torch.cat((wave, rest(self._network, self._state, self._no_mel)), -1)
        due = wave[:, self._given - first : until - first]
        self._given = until
        return due if self._batched else due[0]

    def _hold(self, fresh: Tensor) -> None:
        self._held = fresh if self._held is None else torch.cat((self._held, fresh), -1)

    def _require_open(self) -> None:
        if self._finished:
            raise MossliveError("this stream is finished; open another for the next mel")
