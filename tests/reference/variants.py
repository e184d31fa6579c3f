"""The reference model with one deliberate mistake each.

Every one of them was made by an earlier port of this model, or could be. A comparison that still
passes against a variant proves nothing.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from mosslive.bench.reference import ReferenceModel

VARIANTS = ("no_qk_norm", "shared_final_norm", "summed_embedding", "rope_10000")


class _SummedEmbedding(ReferenceModel):
    def embed(self, rows: Tensor) -> Tensor:
        summed: Tensor = self.embed_tokens(rows[:, 0]) + self.audio_embed(rows[:, 1])
        return summed


def broken_reference(folder: Path, variant: str) -> ReferenceModel:
    if variant == "summed_embedding":
        return _SummedEmbedding(folder)
    if variant == "rope_10000":
        return ReferenceModel(folder, rope_theta=10_000.0)
    model = ReferenceModel(folder)
    if variant == "no_qk_norm":
        for layer in (*model.shared_layers, *model.text_layers, *model.audio_layers):
            layer.self_attn.q_norm = nn.Identity()
            layer.self_attn.k_norm = nn.Identity()
    elif variant == "shared_final_norm":
        assert not torch.equal(model.text_norm.weight, model.audio_norm.weight)
        model.audio_norm = model.text_norm
    else:
        raise ValueError(f"unknown variant {variant!r}; known: {', '.join(VARIANTS)}")
    return model
