"""BigVGAN's stream steps as CUDA graphs, once a stream's layers are full.

A full stream repeats the same shapes with every chunk of the same size. Everything its layers keep
is then one row of numbers per stream, an input and an output of the graph: states stay values, and
streams share a graph. Invariant: a step returns what `advance` returns, captured or not.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mosslive.codec.bigvgan.network import BigVganNetwork
from mosslive.codec.bigvgan.step import BigVganState, advance
from mosslive.kernels.graph import Graphed

Shapes = tuple[torch.Size, ...]


@dataclass(frozen=True)
class FullState(BigVganState):
    """A state whose `kept` are views of one tensor, after a step that kept their shapes."""

    packed: Tensor | None = None  # [B, values], every part as [n, C]
    shapes: Shapes = ()
    frames: int = 0  # of that step


def graphed_advance(
    network: BigVganNetwork, state: BigVganState, mel: Tensor
) -> tuple[Tensor, BigVganState]:
    """As `advance`; a step is captured when its shapes repeat, and then replayed."""
    if not network.dispatch(mel).is_triton:
        return advance(network, state, mel)
    frames = mel.shape[-1]
    if isinstance(state, FullState) and state.frames == frames:
        key = (mel.shape, mel.dtype, state.shapes)
        weight = network.conv_pre.weight
        step: _Step = network.recordings.get(weight, key, lambda: _Step(network, state, mel))
        return step(state, mel)
    wave, after = advance(network, state, mel)
    shapes = tuple(part.shape for part in after.kept)
    if shapes != tuple(part.shape for part in state.kept):
        return wave, after
    return wave, full_state(_packed(after.kept), shapes, frames, after.samples)


class _Step:
    def __init__(self, network: BigVganNetwork, state: FullState, mel: Tensor) -> None:
        shapes, frames = state.shapes, state.frames

        def work(mel: Tensor, packed: Tensor) -> tuple[Tensor, Tensor]:
            full = full_state(packed, shapes, frames, 0)
            wave, after = advance(network, full, mel, copies=False)
            return wave, _packed(after.kept)

        assert state.packed is not None
        self._graph = Graphed(work, mel, state.packed)

    def __call__(self, state: FullState, mel: Tensor) -> tuple[Tensor, FullState]:
        assert state.packed is not None
        wave, packed = (result.clone() for result in self._graph(mel, state.packed))
        samples = state.samples + wave.shape[-1]
        return wave, full_state(packed, state.shapes, state.frames, samples)


def _packed(kept: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.transpose(1, 2).flatten(1) for part in kept], 1)


def full_state(packed: Tensor, shapes: Shapes, frames: int, samples: int) -> FullState:
    parts = torch.split(packed, [channels * count for _, channels, count in shapes], 1)
    kept = tuple(
        part.view(len(part), count, channels).transpose(1, 2)
        for part, (_, channels, count) in zip(parts, shapes, strict=True)
    )
    return FullState(kept, samples, packed, shapes, frames)
