"""The past of a layer of the flow: the columns before its input, and the keys it may read.

The networks are written once, against `Past`. `Whole` is the past of a sequence that is computed in
one pass; `flow_paged` has that of streams that continue. Neither knows the calling network:
convolutions and attention layers are identified by the order of their calls.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Past(Protocol):
    @property
    def positions(self) -> Tensor:
        """[R or 1, T] int64: positions of the columns, counted from the prompt's start."""

    def extend(self, x: Tensor, width: int) -> Tensor:
        """x [R, C, T] → [R, C, width + T]: with the `width` columns before it."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, rotated: Tensor | None = None) -> Tensor:
        """softmax(q · kᵀ / √D + rotated · tableᵀ) · v over all keys the columns may see.

        q, k, v [R, H, T, D] → [R, H, T, D]; rotated [R, H, T, E] where positions enter the scores,
        against the rows of the position table at the keys' positions.
        """


def causal(conv: nn.Conv1d, x: Tensor, past: Past) -> Tensor:
    """[R, C, T] → [R, C', T]: column t sees t - kernel + 1 .. t."""
    y: Tensor = conv(past.extend(x, conv.kernel_size[0] - 1))
    return y


def visible(queries: Tensor, keys: Tensor, chunk: int, window: int | None = None) -> Tensor:
    """Positions [Q], [K] → bool [Q, K]: the query's whole chunk and everything to its left, or the
    `window` positions before the chunk."""
    begin = (queries // chunk * chunk)[:, None]
    seen = keys < begin + chunk
    return seen if window is None else seen & (keys >= begin - window)


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask to add to softmax scores: 0 for `seen` keys, -inf for the others."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, -torch.inf)


class Whole:
    """A sequence from its first column on; `chunk` None means that every column sees all."""

    def __init__(self, length: int, chunk: int | None, like: Tensor, table: Tensor | None = None):
        self._columns = torch.arange(length, device=like.device)
        self._table = None if table is None else table[:length]  # [T, E]
        self._mask = None
        if chunk is not None:
            self._mask = additive(visible(self._columns, self._columns, chunk), like.dtype)

    @property
    def positions(self) -> Tensor:
        return self._columns[None]

    def extend(self, x: Tensor, width: int) -> Tensor:
        return F.pad(x, (width, 0))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, rotated: Tensor | None = None) -> Tensor:
        bias = self._mask
        if rotated is not None:
            assert self._table is not None, "this past was made without a position table"
            scores = rotated @ self._table.T
            bias = scores if bias is None else scores + bias
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
