"""A layer of the encoder, for whole segments and for a few states after a stored past.

Parameters are named as published. Knows neither sound nor codes. Invariants: a state sees itself
and the states before it; sums and norms keep the dtype of the states, products run in that of their
weights.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.kernels.dispatch import AUTO, Dispatch


@dataclass(frozen=True)
class Past:
    """One layer's keys and values, and where the new ones go."""

    k: Tensor  # [B, heads, positions, head_dim], or [pages, heads, 64, head_dim]
    v: Tensor
    position: Tensor  # [B]
    reach: int | None = None  # positions that attention reads; None: all
    pages: Tensor | None = None  # int32 [B, N], with pages: those of each row


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, dispatch: Dispatch = AUTO) -> None:
        super().__init__()
        self.dispatch = dispatch
        self.head_dim = width // heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)
        self._joined: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor, past: Past | None, residual: Tensor) -> Tensor:
        """x [B, t, width] → residual + attention."""
        kernels = self.dispatch(x)
        q, k, v = self._project(x)
        if past is None:
            q, k, v = (each.transpose(1, 2) for each in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        elif past.pages is None:
            y = kernels.step_attention(q, k, v, past.k, past.v, past.position, past.reach)
        else:
            y = kernels.paged_step_attention(q, k, v, past.k, past.v, past.pages, past.position)
        return kernels.rows_linear(y, self.out_proj.weight, self.out_proj.bias, residual=residual)

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        """q, k, v, [B, t, heads, head_dim] each."""
        kernels = self.dispatch(x)
        if kernels.is_triton:
            joined = kernels.rows_linear(x, *self._as_one())
            return joined.view(*x.shape[:2], 3, -1, self.head_dim).unbind(2)
        projections = (self.q_proj, self.k_proj, self.v_proj)
        return tuple(each(x).unflatten(-1, (-1, self.head_dim)) for each in projections)

    def _as_one(self) -> tuple[Tensor, Tensor]:
        """The three projections as one, weight [3 · width, width] and bias; made when first used on
        a GPU, where the three then become views of it."""
        first = self.q_proj.weight
        if self._joined is None or self._joined[0].data_ptr() != first.data_ptr():
            projections = (self.q_proj, self.k_proj, self.v_proj)
            weight = torch.cat([each.weight for each in projections])
            none = torch.zeros_like(self.q_proj.bias)  # keys have no bias
            self._joined = weight, torch.cat((self.q_proj.bias, none, self.v_proj.bias))
            for each, part in zip(projections, weight.chunk(3), strict=True):
                each.weight = nn.Parameter(part, requires_grad=False)
        return self._joined


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, ffn: int, dispatch: Dispatch = AUTO) -> None:
        super().__init__()
        self.dispatch = dispatch
        self.self_attn = SelfAttention(width, heads, dispatch)
        self.self_attn_layer_norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, ffn)
        self.fc2 = nn.Linear(ffn, width)
        self.final_layer_norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, past: Past | None) -> Tensor:
        """x [B, t, width], in the dtype of the norms → the same."""
        dtype = self.fc1.weight.dtype
        x = self.self_attn(self.self_attn_layer_norm(x).to(dtype), past, residual=x)
        y = self.final_layer_norm(x).to(dtype)
        kernels = self.dispatch(y)
        y = kernels.rows_linear(y, self.fc1.weight, self.fc1.bias, gelu=True)
        return kernels.rows_linear(y, self.fc2.weight, self.fc2.bias, residual=x)
