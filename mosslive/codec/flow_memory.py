"""What a stream keeps of a stack of layers between chunks: keys, values and convolution tails.

Keys and values come in two runs of columns: `shared`, computed once for a voice and read by every
stream that speaks with it, and `own`, which grows. Invariant: shared columns are never written;
own columns are written only behind `length`, so a pass that fails has changed nothing that counts.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class MemoryForm:
    layers: int  # attention layers, in the order in which they ask
    rows: int  # 1, or 2 where a stream is computed with and without guidance
    heads: int
    head_dim: int
    tail_values: int  # of all convolutions together, per row


@dataclass
class Columns:
    """Keys and values at positions first .. first + length - 1, for every layer."""

    first: int
    length: int
    layers: list[Tensor]  # [2, rows, H, capacity, D] each: keys, then values

    @property
    def end(self) -> int:
        return self.first + self.length

    @property
    def bytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)


def whole_blocks(columns: int, block: int) -> int:
    return -(-columns // block) * block


@dataclass
class Memory:
    form: MemoryForm
    shared: Columns | None
    own: Columns
    tails: Tensor  # [rows, tail_values]; zeros before the first column

    @classmethod
    def empty(cls, form: MemoryForm, like: Tensor) -> "Memory":
        return cls(form, None, Columns(0, 0, []), like.new_zeros(form.rows, form.tail_values))

    def reserve(self, new: int, keep_from: int, block: int) -> None:
        """Room for `new` more own columns; positions before `keep_from` need not survive.

        Grows by whole blocks and by a quarter of what is held, so that copying costs a constant
        per new column however long the stream is.
        """
        own, form = self.own, self.form
        # The last layer is the last to grow: if growing fails half-way, it is tried again.
        if own.layers and own.length + new <= own.layers[-1].shape[3]:
            return
        first = min(max(own.first, keep_from), own.end)
        kept = own.end - first
        columns = whole_blocks(kept + new + kept // 4, block)
        # Layer by layer in place, so that old and new exist twice for one layer only; but where
        # columns are dropped the layers must change together.
        layers = own.layers if kept == own.length else list(own.layers)
        for index in range(form.layers):
            # Zeros, not rubbish: columns behind the end are multiplied by a weight of 0.
            grown = self.tails.new_zeros(2, form.rows, form.heads, columns, form.head_dim)
            if kept:
                grown[:, :, :, :kept] = layers[index][:, :, :, own.length - kept : own.length]
            if index < len(layers):
                layers[index] = grown
            else:
                layers.append(grown)
        self.own = Columns(first, kept, layers)

    def share(self, most: int | None) -> None:
        """Turns all own columns, or the newest `most`, into shared ones."""
        own = self.own
        assert self.shared is None, "columns are shared once, when a voice is opened"
        if most is not None and most < own.length:
            cut = slice(own.length - most, own.length)
            layers = [layer[:, :, :, cut].clone() for layer in own.layers]
            self.shared = Columns(own.end - most, most, layers)
        elif own.length:
            layers = [layer[:, :, :, : own.length] for layer in own.layers]
            self.shared = Columns(own.first, own.length, layers)
        self.own = Columns(own.end, 0, [])

    def fork(self) -> "Memory":
        """A second memory that continues from here; shared columns stay shared."""
        own = self.own
        copied = Columns(own.first, own.length, [layer.clone() for layer in own.layers])
        return Memory(self.form, self.shared, copied, self.tails.clone())

    def close(self) -> None:
        self.shared, self.own = None, Columns(0, 0, [])
        self.tails = torch.empty(0)
