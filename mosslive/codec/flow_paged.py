"""The past of streams whose chunks are stored in pages; implements `flow_past.Past`.

One step advances each of B streams by one chunk of T columns. Does not know the calling network:
layers and convolutions are identified by the order of their calls. Invariant: pages before the
chunk's own are only read.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from mosslive.codec.flow_pages import PageStore
from mosslive.kernels.flow_chunks import Chunks


class Paged:
    """A `Past` of B rows, all float32."""

    def __init__(
        self,
        store: PageStore,
        chunks: Chunks,
        attention: Callable[..., Tensor],
        table: Tensor,
    ) -> None:
        """`table` [N, E]: the position table that scores are taken against."""
        self._store, self._chunks = store, chunks
        self._attention, self._table = attention, table
        self._own, self._before = chunks.own, chunks.before
        self._layer = 0  # calls so far
        self._value = 0  # tail values used so far

    @property
    def positions(self) -> Tensor:
        columns = self._store.form.columns
        steps = torch.arange(columns, device=self._own.device)
        # Padding of a last chunk may lie beyond the table's end; its values are not used.
        places = columns * self._chunks.index[:, None].long() + steps
        return places.clamp(max=len(self._table) - 1)

    def extend(self, x: Tensor, width: int) -> Tensor:
        rows, channels, _ = x.shape
        span = slice(self._value, self._value + channels * width)
        self._value = span.stop
        tails = self._store.tails
        whole = torch.cat((tails[self._before, 0, span].view(rows, channels, width), x), 2)
        tails[self._own, 0, span] = whole[:, :, -width:].flatten(1)
        return whole

    def attend(self, q: Tensor, k: Tensor, v: Tensor, rotated: Tensor | None = None) -> Tensor:
        pages = self._store.layers[self._layer]
        self._layer += 1
        pages[:, self._own, 0] = torch.stack((k, v))  # [2, B, H, T, D]
        by_column = q.transpose(1, 2).contiguous()
        by_position = None if rotated is None else rotated.transpose(1, 2).contiguous()
        found = self._attention(by_column, pages, self._chunks, None, by_position, self._table)
        return found.transpose(1, 2)
