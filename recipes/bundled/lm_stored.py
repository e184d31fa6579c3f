"""The stored form of the language model's tensors: matrices of layers in 8 bits, the rest in 16.

Knows the published names, not the computation. Invariants: no scale is stored, because
`checkpoint_tensors` moves it to where it cancels; storing the result of `trained_tensors` gives the
same checkpoint again.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

# Of the layers' matrices: half the bytes allow twice the layers. With this scale no value of a
# trained model overflows, and a thousandth of the largest is still represented.
STORED = torch.float8_e4m3fn
STORED_SCALE = 128.0
MATRICES = "_proj.weight"  # suffixes of the names of the layers' matrices
_LARGEST = torch.finfo(STORED).max


def stored(weight: Tensor) -> Tensor:
    """Returns a matrix of a layer as stored, scaled up by `STORED_SCALE`: in float8 with three
    mantissa bits."""
    return (weight * STORED_SCALE).clamp(-_LARGEST, _LARGEST).to(STORED)


def rounded(weight: Tensor) -> Tensor:
    """Rounds as if stored and read back; gradients pass unchanged."""
    with torch.no_grad():
        lost = stored(weight).to(weight.dtype) / STORED_SCALE - weight
    return weight + lost


def _scale(name: str) -> float:
    """Returns the factor by which a stored tensor is scaled up."""
    if name.endswith((MATRICES, "embed_tokens.weight", "audio_embed.weight")):
        return STORED_SCALE
    if name.endswith("_layernorm.weight"):
        return 1 / STORED_SCALE
    assert name.endswith(("_norm.weight", "_lm_head.weight")), name
    return 1.0


def checkpoint_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors of the checkpoint: matrices of layers in their stored form, everything
    else in float16. The power of two `STORED_SCALE` cancels exactly: the norms before a layer's
    inputs divide by it; at its outputs the residual, which begins with the embeddings, is scaled up
    by it. The norm at the end of a tail is independent of scale."""
    found = {}
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().float()
        narrow = name.endswith(MATRICES)
        found[name] = stored(value) if narrow else (value * _scale(name)).half()
    return found


def trained_tensors(checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the training tensors of a checkpoint, to continue from: float32, as rounded."""
    return {name: tensor.float() / _scale(name) for name, tensor in checkpoint.items()}
