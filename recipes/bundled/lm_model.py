"""The language model in plain PyTorch, for training: trunk, two tails, two heads.

The package's decoder keeps no gradients and works on pages; this is the same function of whole
rows, with the published tensor names. Knows nothing of data. Invariant: `state_dict()` is the
content of the checkpoint, and the package's logits are these.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.config import ModelConfig
from mosslive.kernels import RotaryTable


class Logits(NamedTuple):
    text: Tensor
    audio: Tensor


class _Norm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight


class _Attention(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.head_dim = c.head_dim
        queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        self.groups = c.num_attention_heads // c.num_key_value_heads
        self.q_proj = nn.Linear(c.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, c.hidden_size, bias=False)
        self.q_norm = _Norm(c.head_dim, c.rms_norm_eps)
        self.k_norm = _Norm(c.head_dim, c.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
        q, k, v = (
            each(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # [B, H, L, D]
            for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = self.q_norm(q), self.k_norm(k)
        q, k = (y * cos + y.roll(self.head_dim // 2, -1) * signed_sin for y in (q, k))
        k, v = (y.repeat_interleave(self.groups, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        out: Tensor = self.o_proj(y.transpose(1, 2).flatten(2))
        return out


class _Mlp(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


class _Layer(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = _Norm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = _Attention(c)
        self.post_attention_layernorm = _Norm(c.hidden_size, c.rms_norm_eps)
        self.mlp = _Mlp(c)

    def forward(self, x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, signed_sin)
        y: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return y


class _Block(nn.Module):
    def __init__(self, c: ModelConfig, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(c) for _ in range(layers))

    def forward(self, x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, cos, signed_sin)
        return x


class _Body(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.audio_embed = nn.Embedding(c.audio_vocab_size, c.hidden_size)
        self.shared_block = _Block(c, c.num_shared_layers)
        self.text_block = _Block(c, c.num_modality_layers)
        self.audio_block = _Block(c, c.num_modality_layers)
        self.text_norm = _Norm(c.hidden_size, c.rms_norm_eps)
        self.audio_norm = _Norm(c.hidden_size, c.rms_norm_eps)


class LmModel(nn.Module):
    cos: Tensor
    signed_sin: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = _Body(config)
        self.text_lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.audio_lm_head = nn.Linear(config.hidden_size, config.audio_vocab_size, bias=False)
        rotary = RotaryTable(
            config.rope_theta,
            config.head_dim,
            config.max_position_embeddings,
            torch.float32,
            torch.device("cpu"),
        )
        self.register_buffer("cos", rotary.cos, persistent=False)
        self.register_buffer("signed_sin", rotary.signed_sin, persistent=False)
        depth = (2 * config.num_hidden_layers) ** -0.5
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                small = name.endswith(("o_proj.weight", "down_proj.weight"))
                scale = config.hidden_size**-0.5
                spread = 0.5 if "embed" in name else scale * (depth if small else 1.0)
                nn.init.normal_(weight, std=spread)

    def forward(self, text: Tensor, audio: Tensor) -> tuple[Tensor, Tensor]:
        """Ids [B, L] each → the two tails' normed states [B, L, H]; `logits` of those wanted."""
        body, length = self.model, text.shape[1]
        spoken = (text == self.config.modality_pad_token_id)[..., None]
        x = torch.where(spoken, body.audio_embed(audio), body.embed_tokens(text))
        turn = self.cos[:length], self.signed_sin[:length]
        x = body.shared_block(x, *turn)
        written = body.text_norm(body.text_block(x, *turn))
        return written, body.audio_norm(body.audio_block(x, *turn))

    def logits(self, text: Tensor, audio: Tensor) -> Logits:
        """Of every row: [B, L, V] each."""
        written, spoken = self(text, audio)
        return Logits(self.text_lm_head(written), self.audio_lm_head(spoken))
