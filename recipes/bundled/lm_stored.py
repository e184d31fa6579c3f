"""How the language model's tensors are stored: the layers' matrices in eight bits, the rest in 16.

Knows the published names, nothing of what is computed with them. Invariants: no scale is stored,
and none is needed: `checkpoint_tensors` moves it to where it cancels; what `trained_tensors` makes
of a checkpoint is stored as the same checkpoint again.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

# Of the layers' matrices: half the bytes buy twice the layers. With this scale, none of a trained
# model's values is too large, and a thousandth of their size is still told apart.
STORED = torch.float8_e4m3fn
STORED_SCALE = 128.0
MATRICES = "_proj.weight"  # how names of the layers' matrices end
_LARGEST = torch.finfo(STORED).max


def stored(weight: Tensor) -> Tensor:
    """A matrix of a layer as it is stored, `STORED_SCALE` times too large: in eight bits, three of
    them after the point."""
    return (weight * STORED_SCALE).clamp(-_LARGEST, _LARGEST).to(STORED)


def rounded(weight: Tensor) -> Tensor:
    """As it will be read back; gradients pass as if nothing were rounded."""
    with torch.no_grad():
        lost = stored(weight).to(weight.dtype) / STORED_SCALE - weight
    return weight + lost


def _scale(name: str) -> float:
    """How many times too large a tensor is stored."""
    if name.endswith((MATRICES, "embed_tokens.weight", "audio_embed.weight")):
        return STORED_SCALE
    if name.endswith("_layernorm.weight"):
        return 1 / STORED_SCALE
    assert name.endswith(("_norm.weight", "_lm_head.weight")), name
    return 1.0


def checkpoint_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The content of the checkpoint: matrices of layers as they are stored, all else in float16.
    That they are too large by `STORED_SCALE`, a power of two, is undone exactly: before a layer's
    inputs by the norms there; at its outputs by making what they are added to, which begins with
    the embeddings, as much larger. The norm at the end of a tail does not see how large."""
    found = {}
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().float()
        narrow = name.endswith(MATRICES)
        found[name] = stored(value) if narrow else (value * _scale(name)).half()
    return found


def trained_tensors(checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """From a checkpoint back to what was trained, to go on from there: float32, as rounded."""
    return {name: tensor.float() / _scale(name) for name, tensor in checkpoint.items()}
