"""The decoder's weights on a device, and how they are loaded from a checkpoint.

Projections that read the same input are stored as one matrix: q|k|v and gate|up. Each target is
allocated once and filled from the mapped file piece by piece, so loading needs no second copy.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mosslive.checkpoint import Checkpoint
from mosslive.checkpoint import layout as names
from mosslive.config import ModelConfig
from mosslive.kernels import Matrix
from mosslive.rows import Channel


@dataclass(frozen=True)
class LayerWeights:
    input_norm: Tensor  # [H]
    qkv: Matrix  # [(heads + 2 · kv_heads) · D, H]
    qk_norm: Tensor  # [heads + kv_heads, D]: q_norm for each head, then k_norm
    o: Matrix  # [H, heads · D]
    post_norm: Tensor  # [H]
    gate_up: Matrix  # [2 · I, H]
    down: Matrix  # [H, I]


@dataclass(frozen=True)
class TailWeights:
    """The weights of one channel: embedding, layers, final norm, head."""

    embed: Tensor  # [V, H]
    layers: list[LayerWeights]
    norm: Tensor  # [H]
    head: Matrix  # [V, H]


@dataclass(frozen=True)
class DecoderWeights:
    trunk: list[LayerWeights]
    tails: dict[Channel, TailWeights]


def load_weights(
    checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype
) -> DecoderWeights:
    config = checkpoint.config
    hidden = config.hidden_size

    def stacked(parts: list[str], rows: list[int], columns: int) -> Tensor:
        target = torch.empty((sum(rows), columns), device=device, dtype=dtype)
        first = 0
        for count, name in zip(rows, parts, strict=True):
            checkpoint.copy_into(target[first : first + count], name)
            first += count
        return target

    def matrix(name: str, rows: int, columns: int) -> Tensor:
        return stacked([name], [rows], columns)

    def vector(name: str, size: int) -> Tensor:
        target = torch.empty(size, device=device, dtype=dtype)
        checkpoint.copy_into(target, name)
        return target

    prefixes = names.layer_prefixes(config)
    trunk = [_load_layer(p, config, vector, stacked) for p in prefixes["shared"]]

    def load_tail(channel: Channel, embed: str, norm: str, head: str, size: int) -> TailWeights:
        return TailWeights(
            embed=matrix(embed, size, hidden),
            layers=[_load_layer(p, config, vector, stacked) for p in prefixes[channel]],
            norm=vector(norm, hidden),
            head=Matrix(matrix(head, size, hidden)),
        )

    text = (names.TEXT_EMBED, names.TEXT_NORM, names.TEXT_HEAD, config.vocab_size)
    audio = (names.AUDIO_EMBED, names.AUDIO_NORM, names.AUDIO_HEAD, config.audio_vocab_size)
    tails: dict[Channel, TailWeights] = {
        "text": load_tail("text", *text),
        "audio": load_tail("audio", *audio),
    }
    return DecoderWeights(trunk, tails)


def _load_layer(
    prefix: str,
    config: ModelConfig,
    vector: Callable[[str, int], Tensor],
    stacked: Callable[[list[str], list[int], int], Tensor],
) -> LayerWeights:
    hidden, inner, width = config.hidden_size, config.intermediate_size, config.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads

    def named(*parts: str) -> list[str]:
        return [f"{prefix}.{part}.weight" for part in parts]

    q_norm, k_norm = (vector(name, width) for name in named("self_attn.q_norm", "self_attn.k_norm"))
    return LayerWeights(
        input_norm=vector(f"{prefix}.input_layernorm.weight", hidden),
        qkv=Matrix(
            stacked(
                named("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
                [heads * width, kv_heads * width, kv_heads * width],
                hidden,
            )
        ),
        qk_norm=torch.cat((q_norm.expand(heads, -1), k_norm.expand(kv_heads, -1))),
        o=Matrix(stacked(named("self_attn.o_proj"), [hidden], heads * width)),
        post_norm=vector(f"{prefix}.post_attention_layernorm.weight", hidden),
        gate_up=Matrix(stacked(named("mlp.gate_proj", "mlp.up_proj"), [inner, inner], hidden)),
        down=Matrix(stacked(named("mlp.down_proj"), [hidden], inner)),
    )
