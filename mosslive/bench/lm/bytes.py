"""Counts the bytes that a step must read and the FLOPs of a pass, from the weights as stored.

A lower bound: every weight and every visible key and value once; activations, sampling and writes
are left out. Gives the floor that times are compared with.
"""

from collections.abc import Iterable, Iterator

from torch import Tensor

from mosslive.kernels import Matrix
from mosslive.model import DecoderWeights, LayerWeights
from mosslive.rows import Channel


def weight_bytes(weights: DecoderWeights, channels: tuple[Channel, ...]) -> int:
    """Returns the weight bytes of a step that runs these tails and heads, without embeddings: a
    step looks up only a few rows of them."""
    tensors = [t for layer in layers_of(weights, channels) for t in _tensors(layer)]
    for channel in channels:
        tail = weights.tails[channel]
        tensors += [tail.norm, *_parts(tail.head)]
    return sum(tensor.nbytes for tensor in tensors)


def cache_bytes(
    weights: DecoderWeights, channels: tuple[Channel, ...], contexts: Iterable[int], kv_width: int
) -> int:
    """`contexts`: rows that each stream's new row sees, itself included. `kv_width`: values per
    key."""
    itemsize = weights.tails["text"].norm.element_size()
    return sum(contexts) * len(layers_of(weights, channels)) * 2 * kv_width * itemsize


def pass_flops(
    weights: DecoderWeights, channels: tuple[Channel, ...], rows: int, attention_width: int
) -> tuple[float, float]:
    """Returns the FLOPs of `rows` rows without a cache, heads on the last row: (in the dtype of the
    model, in float8). `attention_width`: heads · D."""
    wide = narrow = 0.0
    layers = layers_of(weights, channels)
    for layer in layers:
        for matrix in (layer.qkv, layer.o, layer.gate_up, layer.down):
            flops = 2.0 * rows * matrix.weight.numel()
            wide, narrow = (
                (wide, narrow + flops) if matrix.scale is not None else (wide + flops, narrow)
            )
    wide += len(layers) * 2 * rows * (rows + 1) * attention_width  # q · k and p · v, causal
    wide += sum(2.0 * weights.tails[channel].head.weight.numel() for channel in channels)
    return wide, narrow


def layers_of(weights: DecoderWeights, channels: tuple[Channel, ...]) -> list[LayerWeights]:
    tails = [layer for channel in channels for layer in weights.tails[channel].layers]
    return [*weights.trunk, *tails]


def _tensors(layer: LayerWeights) -> Iterator[Tensor]:
    for value in vars(layer).values():
        yield from _parts(value) if isinstance(value, Matrix) else (value,)


def _parts(matrix: Matrix) -> Iterator[Tensor]:
    yield matrix.weight
    if matrix.scale is not None:
        yield matrix.scale
