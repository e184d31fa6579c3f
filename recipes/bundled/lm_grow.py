"""Grows a language model: more layers, same function.

A new layer is a copy of the one before it with two zero outputs. It adds nothing at first and
learns from the first step, because its inner weights are trained. Knows tensors and names, not
training. Invariant: the logits stay the same, bit by bit.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from mosslive.config import ModelConfig

_LAYER = re.compile(r"model\.(\w+_block)\.layers\.(\d+)\.(.+)")
_OUTPUTS = ("o_proj.weight", "down_proj.weight")


def grown(tensors: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """`tensors` are of a model like `config` with as many layers or fewer; as many are returned
    unchanged."""
    wanted = {
        "shared_block": config.num_shared_layers,
        "text_block": config.num_modality_layers,
        "audio_block": config.num_modality_layers,
    }
    found: dict[str, Tensor] = {}
    blocks: dict[str, dict[int, dict[str, Tensor]]] = {name: {} for name in wanted}
    for name, tensor in tensors.items():
        match = _LAYER.fullmatch(name)
        if match is None:
            found[name] = tensor
        else:
            blocks[match[1]].setdefault(int(match[2]), {})[match[3]] = tensor
    for block, layers in blocks.items():
        count, before = wanted[block], len(layers)
        if not 1 <= before <= count:
            raise ValueError(f"{block} has {before} layers; allowed: 1 to {count}, the config's")
        last = -1
        for number in range(count):
            old = number * before // count  # spread evenly; the first of each is the old layer
            for part, tensor in layers[old].items():
                silent = old == last and part.endswith(_OUTPUTS)
                kept = torch.zeros_like(tensor) if silent else tensor.clone()
                found[f"model.{block}.layers.{number}.{part}"] = kept
            last = old
    return found
