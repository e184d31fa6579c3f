"""The flow's upsampling conformer: codes at 12.5 per second → hidden frames at 50 per second.

Two stacks of relative-position layers with a x4 repetition between them. Keeps no state: what came
before is in the two pasts it is given. Invariant: token i reads tokens up to i + 3 and, through
attention, what its past shows it; only differences of positions enter.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.codec.flow_past import Past, causal
from mosslive.codec.flow_tensors import count_of, shape_of

LOOK_AHEAD = 3  # tokens: kernel 4 of the first convolution
FRAMES_PER_TOKEN = 4
_LAYER_EPS = 1e-12  # of the layers' norms only; embed and after_norm have PyTorch's 1e-5


@dataclass(frozen=True)
class ConformerDims:
    width: int
    heads: int
    ffn: int
    layers: int  # at 12.5 tokens/s
    up_layers: int  # at 50 frames/s

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "ConformerDims":
        return cls(
            width=shape_of(tensors, "encoder.after_norm.weight", 1)[0],
            heads=shape_of(tensors, "encoder.encoders.0.self_attn.pos_bias_u", 2)[0],
            ffn=shape_of(tensors, "encoder.encoders.0.feed_forward.w_1.weight", 2)[0],
            layers=count_of(tensors, "encoder.encoders"),
            up_layers=count_of(tensors, "encoder.up_encoders"),
        )


def position_table(length: int, width: int) -> Tensor:
    """[length, width]: sin(p · w_m) in column 2m, cos(p · w_m) in 2m+1, w_m = 10000^(-2m/width)."""
    # float64 inside: in float32 p · w_m is off by 1e-4 at the positions of a long stream.
    place = torch.arange(length, dtype=torch.float64, device="cpu")[:, None]
    even = torch.arange(0, width, 2, dtype=torch.float64, device="cpu")
    angle = place * torch.exp(even * (-math.log(10000.0) / width))
    return torch.stack((angle.sin(), angle.cos()), 2).flatten(1).float()


def rotate(query: Tensor, at: Tensor) -> Tensor:
    """The vector t with t · table[j] = query · pe(i - j) for every j, where `at` is table[i].

    With sin(i-j) and cos(i-j) written out, the difference of positions splits into the query's and
    the key's own. So scores need neither a table per layer nor a shift, and streams at
    different positions share one table. query [R, H, T, E], at [R or 1, T, E] → [R, H, T, E].
    """
    a, b = query[..., 0::2], query[..., 1::2]
    sin, cos = at[:, None, :, 0::2], at[:, None, :, 1::2]
    return torch.stack((b * sin - a * cos, a * sin + b * cos), -1).flatten(-2)


class RelativeAttention(nn.Module):
    """score(i, j) = [(q_i + u) · k_j + (q_i + v) · W_pos pe(i - j)] / √D."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.linear_q = nn.Linear(width, width)
        self.linear_k = nn.Linear(width, width)
        self.linear_v = nn.Linear(width, width)
        self.linear_out = nn.Linear(width, width)
        self.linear_pos = nn.Linear(width, width, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(heads, width // heads))
        self.pos_bias_v = nn.Parameter(torch.zeros(heads, width // heads))

    def forward(self, x: Tensor, at: Tensor, past: Past) -> Tensor:
        heads, head_dim = self.pos_bias_u.shape
        q, k, v = (  # [B, H, T, D]
            linear(x).unflatten(2, (heads, head_dim)).transpose(1, 2)
            for linear in (self.linear_q, self.linear_k, self.linear_v)
        )
        by_head = self.linear_pos.weight.view(heads, head_dim, -1)  # [H, D, E]
        query = (q + self.pos_bias_v[:, None]) @ by_head * head_dim**-0.5  # [B, H, T, E]
        attended = past.attend(q + self.pos_bias_u[:, None], k, v, rotate(query, at))
        out: Tensor = self.linear_out(attended.transpose(1, 2).flatten(2))
        return out


class _FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.w_1 = nn.Linear(width, hidden)
        self.w_2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.w_2(F.silu(self.w_1(x)))
        return y


class ConformerLayer(nn.Module):
    """Attention and feed-forward, each after its norm; no convolution, no norm at the end."""

    def __init__(self, dims: ConformerDims) -> None:
        super().__init__()
        self.self_attn = RelativeAttention(dims.width, dims.heads)
        self.feed_forward = _FeedForward(dims.width, dims.ffn)
        self.norm_mha = nn.LayerNorm(dims.width, eps=_LAYER_EPS)
        self.norm_ff = nn.LayerNorm(dims.width, eps=_LAYER_EPS)

    def forward(self, x: Tensor, at: Tensor, past: Past) -> Tensor:
        x = x + self.self_attn(self.norm_mha(x), at, past)
        y: Tensor = x + self.feed_forward(self.norm_ff(x))
        return y


class _Embed(nn.Module):
    """√width · LayerNorm(Linear(x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.ModuleDict({"0": nn.Linear(width, width), "1": nn.LayerNorm(width)})

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out["1"](self.out["0"](x))
        return y * math.sqrt(x.shape[-1])


class _LookAhead(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(width, width, LOOK_AHEAD + 1)
        self.conv2 = nn.Conv1d(width, width, 3)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        """[B, n + LOOK_AHEAD, d] → [B, n, d]"""
        y = F.leaky_relu(self.conv1(x.mT), 0.01)
        return causal(self.conv2, y, past).mT + x[:, :-LOOK_AHEAD]


class _Upsample(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, 2 * FRAMES_PER_TOKEN + 1)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        """[B, n, d] → [B, 4n, d]"""
        return causal(self.conv, x.mT.repeat_interleave(FRAMES_PER_TOKEN, 2), past).mT


class UpsampleConformer(nn.Module):
    table: Tensor

    def __init__(self, dims: ConformerDims, max_positions: int) -> None:
        super().__init__()
        self.dims = dims
        self.embed = _Embed(dims.width)
        self.pre_lookahead_layer = _LookAhead(dims.width)
        self.encoders = nn.ModuleList(ConformerLayer(dims) for _ in range(dims.layers))
        self.up_layer = _Upsample(dims.width)
        self.up_embed = _Embed(dims.width)
        self.up_encoders = nn.ModuleList(ConformerLayer(dims) for _ in range(dims.up_layers))
        self.after_norm = nn.LayerNorm(dims.width)
        table = position_table(max_positions, dims.width)
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor, present: Tensor, tokens: Past, frames: Past) -> Tensor:
        """Embedded codes x [B, n + 3, d] → hidden frames [B, 4n, d].

        The last three columns are look-ahead only. `present` [B, n + 3] is False where there is no
        token: at the end of a stream that means zero vectors after `embed`, which is not the same
        as the embedding of any token.
        """
        x = self.embed(x) * present[..., None]
        x = self.pre_lookahead_layer(x, tokens)
        at = self.table[tokens.positions]
        for layer in self.encoders:
            x = layer(x, at, tokens)
        x = self.up_embed(self.up_layer(x, frames))
        at = self.table[frames.positions]
        for layer in self.up_encoders:
            x = layer(x, at, frames)
        y: Tensor = self.after_norm(x)
        return y

    def tail_values(self) -> tuple[int, int]:
        """Values that a stream stores between chunks for the convolutions of the two stacks."""
        convs = (self.pre_lookahead_layer.conv2, self.up_layer.conv)
        first, second = (conv.in_channels * (conv.kernel_size[0] - 1) for conv in convs)
        return first, second
