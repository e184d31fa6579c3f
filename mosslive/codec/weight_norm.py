"""Weight norm undone: a stored direction and length become the one weight that a network uses.

Works on a state dict by its names alone and knows no network. Invariant: the result holds no
weight-norm name, and everything that was not weight-normed is in it unchanged.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from mosslive.errors import MossliveError, name_list

# Halves of the two spellings in published files: the length g, then the direction v.
_NEW_STYLE = ("parametrizations.weight.original0", "parametrizations.weight.original1")
_OLD_STYLE = ("weight_g", "weight_v")
_FOLDED = "weight"
_HALF = re.compile(
    r"(?P<layer>(?:.*\.)?)(?P<half>parametrizations\.weight\.original[01]|weight_[gv])"
)


def fold_weight_norm(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every pair of halves as `<layer>.weight` = g · v / ‖v‖; other tensors as they are.

    The norm is over all axes but the first, also for transposed convolutions, where the first is
    the input channel. Raises where the layer's weight is not determined: a half is missing, it is
    given in two ways, or the file mixes both styles.
    """
    halves: dict[str, set[str]] = {}
    folded: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if match := _HALF.fullmatch(name):
            halves.setdefault(match["layer"], set()).add(match["half"])
        else:
            folded[name] = tensor
    both = {style for found in halves.values() for style in map(_style, found)}
    if len(both) > 1:
        layers = name_list(sorted(halves))
        raise MossliveError(f"weight norm in both the old and the new style, in {layers}")
    for layer, found in halves.items():
        if layer + _FOLDED in folded:
            raise MossliveError(f"{layer}weight is given folded and as {name_list(sorted(found))}")
        style = _style(next(iter(found)))
        for half in style:
            if half not in found:
                raise MossliveError(f"weight norm of {layer}weight has no {layer}{half}")
        g, v = (tensors[layer + half] for half in style)
        folded[layer + _FOLDED] = _fold(layer, g, v)
    return folded


def _style(half: str) -> tuple[str, str]:
    return _NEW_STYLE if half in _NEW_STYLE else _OLD_STYLE


def _fold(layer: str, g: Tensor, v: Tensor) -> Tensor:
    """g [C, 1, ...], v [C, ...] → [C, ...]"""
    lengths = (v.shape[0], *[1] * (v.dim() - 1)) if v.dim() > 1 else None
    if lengths is None or tuple(g.shape) != lengths:
        raise MossliveError(
            f"weight norm of {layer}weight: lengths {list(g.shape)} for directions {list(v.shape)}"
            f"; allowed: {list(lengths) if lengths else 'directions of two axes or more'}"
        )
    wide = v.double()
    norm: Tensor = torch.linalg.vector_norm(wide, dim=tuple(range(1, v.dim())), keepdim=True)
    if bool((norm == 0).any()):
        raise MossliveError(f"weight norm of {layer}weight: a direction is zero, it has no length")
    return (g.double() * wide / norm).to(v.dtype)
