"""Computes golden logits from the published tensors in float32 on the CPU, layer by layer.

Shares no code with the decoder it checks: no fused matrices, no pages, no kernels. Only the
published tensor names and the config are common. Needs about 1 GB of memory at full size.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.checkpoint import Checkpoint, layout
from mosslive.config import ModelConfig
from mosslive.rows import CHANNELS, Channel, Row

_ENDS: dict[Channel, tuple[str, str]] = {  # norm, head
    "text": (layout.TEXT_NORM, layout.TEXT_HEAD),
    "audio": (layout.AUDIO_NORM, layout.AUDIO_HEAD),
}


@torch.inference_mode()
def reference_logits(
    checkpoint: Checkpoint,
    sequences: list[list[Row]],
    positions: list[list[int]],
    progress: Callable[[int], None] = lambda _: None,
) -> list[dict[Channel, Tensor]]:
    """The float32 logits [positions, V] of both heads for each sequence. Calls `progress(1)` after
    each layer."""
    config = checkpoint.config
    lengths = [len(rows) for rows in sequences]
    prefixes = layout.layer_prefixes(config)
    hidden = _embed(checkpoint, [row for rows in sequences for row in rows])
    for prefix in prefixes["shared"]:
        hidden = _layer(_layer_tensors(checkpoint, prefix), hidden, lengths, config)
        progress(1)
    found: dict[Channel, list[Tensor]] = {}
    for channel in CHANNELS:
        tail = hidden
        for prefix in prefixes[channel]:
            tail = _layer(_layer_tensors(checkpoint, prefix), tail, lengths, config)
            progress(1)
        parts = torch.split(tail, lengths)
        wanted = torch.cat([part[at] for part, at in zip(parts, positions, strict=True)])
        norm, head = _ENDS[channel]
        normed = _norm(wanted, _whole(checkpoint, norm), config.rms_norm_eps)
        blocks = [normed @ block.float().T for _, block in checkpoint.blocks(head)]
        found[channel] = list(torch.split(torch.cat(blocks, dim=1), [len(at) for at in positions]))
    return [{c: found[c][n] for c in CHANNELS} for n in range(len(sequences))]


def _embed(checkpoint: Checkpoint, rows: list[Row]) -> Tensor:
    """Rows → [T, H]. Speech rows are embedded by their audio id, all others by their text id."""
    config = checkpoint.config
    text, audio = torch.tensor(rows).unbind(1)
    spoken = text == config.modality_pad_token_id
    hidden = torch.empty(len(rows), config.hidden_size)
    for table, ids, chosen in (
        (layout.TEXT_EMBED, text, ~spoken),
        (layout.AUDIO_EMBED, audio, spoken),
    ):
        for first, block in checkpoint.blocks(table):
            here = chosen & (ids >= first) & (ids < first + len(block))
            hidden[here] = block[ids[here] - first].float()
    return hidden


def _layer_tensors(checkpoint: Checkpoint, prefix: str) -> dict[str, Tensor]:
    names = layout.layer_shapes(checkpoint.config)
    return {n.removesuffix(".weight"): _whole(checkpoint, f"{prefix}.{n}") for n in names}


def _whole(checkpoint: Checkpoint, name: str) -> Tensor:
    return torch.cat([block.float() for _, block in checkpoint.blocks(name)])


def _layer(
    weights: dict[str, Tensor], hidden: Tensor, lengths: list[int], config: ModelConfig
) -> Tensor:
    """One Qwen3 layer. hidden [T, H]: the rows of all sequences, concatenated."""
    eps, width = config.rms_norm_eps, config.head_dim
    normed = _norm(hidden, weights["input_layernorm"], eps)
    q, k, v = (
        (normed @ weights[f"self_attn.{letter}_proj"].T).view(len(hidden), -1, width)
        for letter in "qkv"
    )  # [T, heads, D]
    positions = torch.cat([torch.arange(length) for length in lengths])
    q = _rotate(_norm(q, weights["self_attn.q_norm"], eps), positions, config.rope_theta)
    k = _rotate(_norm(k, weights["self_attn.k_norm"], eps), positions, config.rope_theta)
    attended = [
        F.scaled_dot_product_attention(
            a.transpose(0, 1)[None],
            b.transpose(0, 1)[None],
            c.transpose(0, 1)[None],
            is_causal=True,
            enable_gqa=True,
        )[0].transpose(0, 1)
        for a, b, c in zip(*(torch.split(x, lengths) for x in (q, k, v)), strict=True)
    ]
    hidden = hidden + torch.cat(attended).flatten(1) @ weights["self_attn.o_proj"].T
    normed = _norm(hidden, weights["post_attention_layernorm"], eps)
    gate, up = (normed @ weights[f"mlp.{name}_proj"].T for name in ("gate", "up"))
    return hidden + (F.silu(gate) * up) @ weights["mlp.down_proj"].T


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


def _rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary position embedding, half-split: pairs are (x[i], x[i + D/2]). x [T, heads, D]."""
    half = x.shape[-1] // 2
    angles = positions[:, None].double() * theta ** (-torch.arange(half).double() / half)
    cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]  # [T, 1, D/2]
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
