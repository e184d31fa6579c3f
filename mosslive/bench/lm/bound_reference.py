"""transformers' Qwen3 layers over the runtime's own tensors: the reference and the eager baseline.

A bound layer is a `Qwen3DecoderLayer` whose parameters are slices of our fused matrices, so the
reference uses no additional memory in the runtime's dtype. In another dtype, or where a matrix is
float8, one layer at a time is widened and released. The wiring (embedding by selection, trunk, two
tails, two norms, two heads) is ours; the arithmetic is not. Knows no pages.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DynamicCache, Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm

from mosslive.bench.lm.prefix_batch import PrefixBatch
from mosslive.bench.reference import layer_config, rotary_of
from mosslive.config import ModelConfig
from mosslive.kernels import Matrix
from mosslive.model import DecoderWeights, LayerWeights
from mosslive.rows import CHANNELS, Channel


def reference_config(config: ModelConfig) -> Qwen3Config:
    """Each of the 40 layers has its own number, and with it its own slot in one cache."""
    settings = config.to_dict() | {"num_hidden_layers": config.layers}
    return layer_config(settings, config.rope_theta)


def widened(matrix: Matrix, dtype: torch.dtype) -> Tensor:
    """Returns [N, K]: the tensor itself if it already has that dtype."""
    if matrix.scale is None:
        return matrix.weight.to(dtype)
    return (matrix.weight.float() * matrix.scale[:, None]).to(dtype)


def bound_layer(
    settings: Qwen3Config, weights: LayerWeights, number: int, dtype: torch.dtype
) -> nn.Module:
    width, heads = settings.head_dim, settings.num_attention_heads
    keys = len(weights.qk_norm) - heads
    sizes = [heads * width, keys * width, keys * width]
    q, k, v = torch.split(widened(weights.qkv, dtype), sizes)
    gate, up = widened(weights.gate_up, dtype).chunk(2)
    tensors = {
        "input_layernorm": weights.input_norm.to(dtype),
        "self_attn.q_proj": q,
        "self_attn.k_proj": k,
        "self_attn.v_proj": v,
        "self_attn.o_proj": widened(weights.o, dtype),
        "self_attn.q_norm": weights.qk_norm[0].to(dtype),
        "self_attn.k_norm": weights.qk_norm[heads].to(dtype),
        "post_attention_layernorm": weights.post_norm.to(dtype),
        "mlp.gate_proj": gate,
        "mlp.up_proj": up,
        "mlp.down_proj": widened(weights.down, dtype),
    }
    with torch.device("meta"):
        layer = Qwen3DecoderLayer(settings, number)
    layer.load_state_dict({f"{n}.weight": t for n, t in tensors.items()}, strict=True, assign=True)
    return layer.requires_grad_(False).eval()


def run_layer(layer: nn.Module, hidden: Tensor, **how: Any) -> Tensor:
    """Returns the hidden states. Releases before about 4.54 wrap them in a tuple."""
    out = layer(hidden, **how)
    hidden = out[0] if isinstance(out, tuple) else out
    assert isinstance(hidden, Tensor)
    return hidden


class Wiring:
    """Embedding, norms and heads around the layers, from the weights of the runtime."""

    def __init__(self, config: ModelConfig, weights: DecoderWeights) -> None:
        self.config, self.weights = config, weights
        self.settings = reference_config(config)
        norm = weights.tails["text"].norm
        self.device, self.dtype = norm.device, norm.dtype
        self.rotary = rotary_of(self.settings, config.rope_theta).to(self.device)

    def embed(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """rows int64 [..., 2] on the device → [..., H]"""
        tails, (text, audio) = self.weights.tails, rows.unbind(-1)
        spoken = (text == self.config.modality_pad_token_id)[..., None]
        return torch.where(
            spoken, F.embedding(audio, tails["audio"].embed), F.embedding(text, tails["text"].embed)
        ).to(dtype)

    def norm_of(self, tail: Channel, dtype: torch.dtype) -> nn.Module:
        norm = Qwen3RMSNorm(self.config.hidden_size, eps=self.config.rms_norm_eps)
        norm.weight = nn.Parameter(self.weights.tails[tail].norm.to(dtype), requires_grad=False)
        return norm

    def head(self, tail: Channel, hidden: Tensor) -> Tensor:
        return F.linear(hidden, widened(self.weights.tails[tail].head, hidden.dtype))


@torch.no_grad()
def reference_logits(
    wiring: Wiring, batch: PrefixBatch, wanted: Tensor, dtype: torch.dtype
) -> dict[Channel, Tensor]:
    """Returns the logits of the rows `wanted` (indices into the batch), float32 [len(wanted), V] by
    tail. Each layer is bound, used and released, so float32 needs little memory."""
    device, settings = wiring.device, wiring.settings
    hidden = wiring.embed(batch.rows.to(device)[None], dtype)  # [1, n, H]
    rope = wiring.rotary(hidden, batch.positions.to(device)[None])
    mask = batch.mask(device)[None, None]
    wanted = wanted.to(device)

    def run(layers: list[LayerWeights], hidden: Tensor) -> Tensor:
        for weights in layers:
            layer = bound_layer(settings, weights, 0, dtype)
            hidden = run_layer(layer, hidden, attention_mask=mask, position_embeddings=rope)
        return hidden

    trunk = run(wiring.weights.trunk, hidden)
    logits: dict[Channel, Tensor] = {}
    for tail in CHANNELS:
        after = run(wiring.weights.tails[tail].layers, trunk)[0].index_select(0, wanted)
        logits[tail] = wiring.head(tail, wiring.norm_of(tail, dtype)(after)).float()
    return logits


class BoundModel:
    """Every layer bound in the runtime's dtype, in order of computation."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        weights, dtype = wiring.weights, wiring.dtype
        blocks = [weights.trunk, *(weights.tails[tail].layers for tail in CHANNELS)]
        layers = [layer for block in blocks for layer in block]
        if any(matrix.scale is not None for layer in layers for matrix in (layer.qkv, layer.o)):
            raise ValueError(
                "the baseline computes in the dtype of its weights and cannot use float8"
            )
        bound = [
            bound_layer(wiring.settings, layer, number, dtype)
            for number, layer in enumerate(layers)
        ]
        count, tail_count = len(weights.trunk), wiring.config.num_modality_layers
        self.trunk = bound[:count]
        self.tails: dict[Channel, list[nn.Module]] = {
            "text": bound[count : count + tail_count],
            "audio": bound[count + tail_count :],
        }
        self.norms = {tail: wiring.norm_of(tail, dtype) for tail in CHANNELS}


class EagerReference:
    """Runs like the published code: eager, a growing cache, both tails and heads on every row."""

    def __init__(self, model: BoundModel) -> None:
        self._model = model
        self._cache: Any = DynamicCache()
        self._length = 0

    @torch.no_grad()
    def forward(self, rows: Tensor) -> dict[Channel, Tensor]:
        """rows int64 [T, 2] on the device, which follow the rows of earlier calls → logits [T, V]
        by tail. The published code also applies its heads to the whole prompt."""
        model, wiring = self._model, self._model.wiring
        hidden = wiring.embed(rows[None], wiring.dtype)
        end = self._length + len(rows)
        positions = torch.arange(self._length, end, device=wiring.device)[None]
        how = {
            "position_embeddings": wiring.rotary(hidden, positions),
            "position_ids": positions,
            "past_key_values": self._cache,
            "use_cache": True,
            # Without a cache the layer is causal by default; a single row sees everything.
            "attention_mask": None,
        }
        if self._length and len(rows) > 1:
            raise ValueError("give all prompt rows in the first call and then one row per call")
        for layer in model.trunk:
            hidden = run_layer(layer, hidden, **how)
        logits: dict[Channel, Tensor] = {}
        for tail in CHANNELS:
            after = hidden
            for layer in model.tails[tail]:
                after = run_layer(layer, after, **how)
            logits[tail] = wiring.head(tail, model.norms[tail](after))[0].float()
        self._length = end
        return logits

    def kept(self) -> list[tuple[Tensor, Tensor]]:
        """Returns keys and values [1, H_kv, rows, D] of every layer, in order of computation."""
        return [(layer.keys, layer.values) for layer in self._cache.layers]
