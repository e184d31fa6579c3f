"""The past of several streams that continue, each from its own point, in one padded batch.

Linear layers and convolutions run on all streams at once. Attention runs stream by stream: keys
and values stay where they are, in buffers of different length, and are never gathered. Invariant:
memories change only in `commit`, after the pass; until then a failed pass can be forgotten.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.codec.flow_memory import Memory, whole_blocks
from mosslive.codec.flow_past import additive, visible


@dataclass(frozen=True)
class Sight:
    """How far the columns of a stack of layers see, all in columns of that stack."""

    chunk: int
    window: int | None  # before the own chunk; None: everything
    block: int  # keys are read in whole blocks, so that shapes repeat from chunk to chunk


@dataclass(frozen=True)
class Plan:
    """Where the new columns of one stream go and what they see; the same for all its layers."""

    first: int  # position of the first new column
    new: int
    slots: Tensor  # [new], own columns they are written to
    shared_from: int | None  # shared columns read, from here on; None: none
    own_columns: int  # own columns read, from 0 on
    keys: Tensor  # [K], positions of the columns read
    bias: Tensor  # [new, K], 0 where a column sees a key and -inf where not

    @classmethod
    def make(cls, memory: Memory, new: int, sight: Sight) -> "Plan":
        """Reserves room in the memory, then says how it is used."""
        first = memory.own.end
        low = 0 if sight.window is None else first // sight.chunk * sight.chunk - sight.window
        memory.reserve(new, low, sight.block)
        own, shared, device = memory.own, memory.shared, memory.tails.device
        own_columns = whole_blocks(own.length + new, sight.block)
        runs, shared_from = [torch.arange(own.first, own.first + own_columns, device=device)], None
        if shared is not None and low < shared.end:
            shared_from = max(0, low - shared.first) // sight.block * sight.block
            runs.insert(0, torch.arange(shared.first + shared_from, shared.end, device=device))
        keys = torch.cat(runs)
        columns = torch.arange(first, first + new, device=device)
        seen = visible(columns, keys, sight.chunk, sight.window) & (keys < first + new)
        bias = additive(seen, memory.tails.dtype)
        slots = columns - own.first
        return cls(first, new, slots, shared_from, own_columns, keys, bias)


class Resumed:
    """A `Past`. Rows are ordered by half first, then by stream: [half · B + stream]."""

    def __init__(
        self,
        memories: Sequence[Memory],
        new: Sequence[int],
        sight: Sight,
        table: Tensor | None = None,
    ) -> None:
        """Each memory continues by its number of `new` columns; padded to the longest."""
        plans = [Plan.make(*pair, sight) for pair in zip(memories, new, strict=True)]
        self._memories, self._plans = memories, plans
        device = memories[0].tails.device
        firsts = torch.tensor([plan.first for plan in plans], device=device)
        self._positions = firsts[:, None] + torch.arange(max(new), device=device)
        self._new = torch.tensor(new, device=device)
        self._places: list[Tensor] = []
        if table is not None:
            # Padding and unwritten columns may stand behind the table's end; nobody sees them.
            last = len(table) - 1
            self._positions = self._positions.clamp(max=last)
            self._places = [table[plan.keys.clamp(max=last)].T for plan in plans]  # [E, K]
        self._tails = torch.stack([memory.tails for memory in memories], 1)  # [halves, B, values]
        self._next_tails = torch.empty_like(self._tails)
        self._indices: dict[int, Tensor] = {}
        self._layer = 0  # asked so far
        self._value = 0  # tail values asked for so far

    @property
    def positions(self) -> Tensor:
        return self._positions

    def extend(self, x: Tensor, width: int) -> Tensor:
        if width == 0:
            return x
        _, channels, _ = x.shape
        span = slice(self._value, self._value + channels * width)
        self._value = span.stop
        tails = self._tails[:, :, span].reshape(-1, channels, width)  # [R, C, width]
        whole = torch.cat((tails, x), 2)
        newest = self._newest(width, x.device).expand(-1, channels, -1)
        self._next_tails[:, :, span] = whole.gather(2, newest).view_as(self._tails[:, :, span])
        return whole

    def _newest(self, width: int, device: torch.device) -> Tensor:
        """[R, 1, width]: the last columns that are not padding; a short chunk keeps some of the
        old tail. The same for all convolutions of a width."""
        if width not in self._indices:
            newest = self._new[:, None] + torch.arange(width, device=device)
            self._indices[width] = newest.repeat(len(self._tails), 1)[:, None]
        return self._indices[width]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, turned: Tensor | None = None) -> Tensor:
        streams, layer = len(self._plans), self._layer
        self._layer += 1
        result = torch.zeros_like(q)  # what padding gets

        def rows(x: Tensor, stream: int, new: int) -> Tensor:
            return x[stream::streams, :, :new]  # [halves, H, n, D]

        for stream, (memory, plan) in enumerate(zip(self._memories, self._plans, strict=True)):
            own = memory.own.layers[layer]
            own[0].index_copy_(2, plan.slots, rows(k, stream, plan.new))
            own[1].index_copy_(2, plan.slots, rows(v, stream, plan.new))
            runs = [own[:, :, :, : plan.own_columns]]
            if plan.shared_from is not None:
                assert memory.shared is not None
                runs.insert(0, memory.shared.layers[layer][:, :, :, plan.shared_from :])
            bias = plan.bias
            if turned is not None:
                bias = bias + rows(turned, stream, plan.new) @ self._places[stream]
            attended = _attend(rows(q, stream, plan.new), runs, bias)
            rows(result, stream, plan.new).copy_(attended)
        return result

    def commit(self) -> None:
        """The pass is over and good: the new columns count from now on."""
        for stream, (memory, plan) in enumerate(zip(self._memories, self._plans, strict=True)):
            assert self._layer == memory.form.layers, "every layer asks exactly once"
            assert self._value == memory.form.tail_values, "every convolution asks exactly once"
            memory.own.length += plan.new
            memory.tails = self._next_tails[:, stream].clone()


def _attend(q: Tensor, runs: list[Tensor], bias: Tensor) -> Tensor:
    """q [N, H, n, D]; runs of keys and values [2, N, H, K_i, D]; bias [..., n, ΣK] → like q.

    Several runs: their scores are put side by side instead of the keys. With the few queries of a
    chunk scores are small, and a copy of all keys would cost more than reading them.
    """
    if len(runs) == 1:
        return F.scaled_dot_product_attention(q, runs[0][0], runs[0][1], attn_mask=bias)
    scaled = q * q.shape[-1] ** -0.5
    scores = torch.cat([scaled @ run[0].mT for run in runs], -1) + bias
    weights = scores.softmax(-1)
    result, begin = torch.zeros_like(q), 0
    for run in runs:
        end = begin + run.shape[3]
        result += weights[..., begin:end] @ run[1]
        begin = end
    return result
