"""The language model in plain PyTorch, for training: trunk, two tails, two heads.

The package's decoder keeps no gradients and works on pages; this is the same function of whole
rows, with the published tensor names. Rounds the matrices of its layers as they will be stored.
Knows no data. Invariant: the package's logits of its `state_dict()`, as `lm_stored` writes it,
equal these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.config import ModelConfig
from mosslive.kernels import RotaryTable
from recipes.bundled.lm_stored import STORED_SCALE, rounded


class Logits(NamedTuple):
    text: Tensor
    audio: Tensor


class States(NamedTuple):
    """[B, L, H] each: states of the two tails after their norms, and of the trunk before the
    tails."""

    text: Tensor
    audio: Tensor
    trunk: Tensor


class _Norm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (wide * scale * self.weight).to(x.dtype)


def _residual_norm(c: ModelConfig) -> _Norm:
    """Norm of a residual that `checkpoint_tensors` scales up; the stored eps is scaled down by the
    square."""
    return _Norm(c.hidden_size, c.rms_norm_eps / STORED_SCALE**2)


def _through(x: Tensor, *layers: nn.Linear) -> Tensor:
    """Computes several projections of one input as one, so that it is read once. Casts the weights
    here; they stay float32."""
    return F.linear(x, rounded(torch.cat([each.weight for each in layers])).to(x.dtype))


class _Attention(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.head_dim = c.head_dim
        self.queries, self.keys = c.num_attention_heads, c.num_key_value_heads
        self.q_proj = nn.Linear(c.hidden_size, self.queries * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, self.keys * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, self.keys * c.head_dim, bias=False)
        self.o_proj = nn.Linear(self.queries * c.head_dim, c.hidden_size, bias=False)
        self.q_norm = _Norm(c.head_dim, c.rms_norm_eps)
        self.k_norm = _Norm(c.head_dim, c.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
        heads = _through(x, self.q_proj, self.k_proj, self.v_proj)
        heads = heads.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)  # [B, H, L, D]
        q, k, v = torch.split(heads, [self.queries, self.keys, self.keys], 1)
        q, k = self.q_norm(q), self.k_norm(k)
        q, k = ((y * cos + y.roll(self.head_dim // 2, -1) * signed_sin).to(x.dtype) for y in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return _through(y.transpose(1, 2).flatten(2), self.o_proj)


class _Mlp(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = _through(x, self.gate_proj, self.up_proj).chunk(2, -1)
        return _through(F.silu(gate) * up, self.down_proj)


class _Layer(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = _residual_norm(c)
        self.self_attn = _Attention(c)
        self.post_attention_layernorm = _residual_norm(c)
        self.mlp = _Mlp(c)

    def forward(self, x: Tensor, cos: Tensor, signed_sin: Tensor, kept: Tensor) -> Tensor:
        """x [B, L, H]; kept [2, B, 1, H]: what of either branch is kept, 1 where nothing is
        dropped. Sampled by the caller, so that this stays a plain function."""
        x = x + self.self_attn(self.input_layernorm(x), cos, signed_sin) * kept[0]
        y: Tensor = x + self.mlp(self.post_attention_layernorm(x)) * kept[1]
        return y


# How a layer is computed: as written, or compiled.
Runner = Callable[[nn.Module, Tensor, Tensor, Tensor, Tensor], Tensor]


def run_plain(layer: nn.Module, x: Tensor, cos: Tensor, signed_sin: Tensor, kept: Tensor) -> Tensor:
    y: Tensor = layer(x, cos, signed_sin, kept)
    return y


class _Block(nn.Module):
    def __init__(self, c: ModelConfig, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(c) for _ in range(layers))


class _Body(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.audio_embed = nn.Embedding(c.audio_vocab_size, c.hidden_size)
        self.shared_block = _Block(c, c.num_shared_layers)
        self.text_block = _Block(c, c.num_modality_layers)
        self.audio_block = _Block(c, c.num_modality_layers)
        self.text_norm = _residual_norm(c)
        self.audio_norm = _residual_norm(c)


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

    def forward(self, text: Tensor, audio: Tensor, how: "Computing | None" = None) -> States:
        """Ids [B, L] each."""
        how = how or Computing()
        body, length = self.model, text.shape[1]
        # One table: one look-up, and one scattered sum for its gradient.
        table = torch.cat((body.embed_tokens.weight, body.audio_embed.weight))
        spoken = text == self.config.modality_pad_token_id
        x = F.embedding(torch.where(spoken, audio + self.config.vocab_size, text), table)
        x = x.to(how.dtype)
        kept = self._kept(len(text), x, how.dropout)
        x = x * kept[-1, 0]
        turn = self.cos[:length], self.signed_sin[:length]
        each = iter(kept)
        for layer in body.shared_block.layers:
            x = how.run(layer, x, *turn, next(each))
        ends = []
        for block, norm in ((body.text_block, body.text_norm), (body.audio_block, body.audio_norm)):
            y = x
            for layer in block.layers:
                y = how.run(layer, y, *turn, next(each))
            ends.append(norm(y))
        return States(ends[0], ends[1], x)

    def _kept(self, rows: int, like: Tensor, dropout: float) -> Tensor:
        """Returns, for every layer and the embedding, the channels that a row keeps: [N + 1, 2, B,
        1, H]. Equal along a row, which costs no memory and leaks nothing between neighbours."""
        body = self.model
        blocks = (body.shared_block, body.text_block, body.audio_block)
        count = 1 + sum(len(block.layers) for block in blocks)
        kept = like.new_ones(count, 2, rows, 1, like.shape[-1])
        if not dropout:
            return kept
        return (torch.rand_like(kept, dtype=torch.float32) >= dropout).to(kept.dtype) / (
            1 - dropout
        )

    def logits(self, text: Tensor, audio: Tensor) -> Logits:
        """Returns the logits of every row: [B, L, V] each."""
        states = self(text, audio)
        return Logits(self.text_lm_head(states.text), self.audio_lm_head(states.audio))


@dataclass(frozen=True)
class Computing:
    """How a pass is computed: dtype, runner and dropout."""

    dtype: torch.dtype = torch.float32
    run: Runner = run_plain
    dropout: float = 0.0
