"""Pages of a fixed pool: who holds them, and what they hold of a stack of layers.

A page is what one chunk leaves behind: keys and values of every attention layer, and the last
columns of every convolution's input, so that any page is a point to go on from. Streams that share
a beginning share its pages; nothing is ever copied. Knows nothing of networks or of time.
Invariants: pages 0 and 1 are never lent (0 is all zeros, 1 takes what padding writes); a page that
several hold is never written; what is given back is there for the next stream at once.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from mosslive.errors import MossliveError
from mosslive.kernels.flow_chunks import ZERO_PAGE

SCRATCH_PAGE = 1
_NEVER_LENT = 2


class PoolFull(MossliveError):
    """No page is left for another chunk; streams that end give theirs back."""


class FlowPagePool:
    """Allocates the pages of the codec's flow by reference count; touches no tensor."""

    def __init__(self, pages: int, what: str) -> None:
        self.pages, self._what = pages, what
        self._holders = [0] * (pages + _NEVER_LENT)
        self._free = list(range(pages + _NEVER_LENT - 1, _NEVER_LENT - 1, -1))

    @property
    def used(self) -> int:
        return self.pages - len(self._free)

    def require(self, count: int) -> None:
        """So many pages can be taken, or else `PoolFull`."""
        if count > len(self._free):
            raise PoolFull(
                f"{self.used} of {self.pages} pages of the flow's {self._what} are in use and "
                f"{count} more are needed; close replies or voices, set a window, or load the "
                f"codec with more pool_seconds"
            )

    def take(self) -> int:
        self.require(1)
        page = self._free.pop()
        self._holders[page] = 1
        return page

    def share(self, page: int) -> None:
        if page >= _NEVER_LENT:
            self._holders[page] += 1

    def give_back(self, page: int) -> None:
        if page < _NEVER_LENT:
            return
        assert self._holders[page] > 0, "a page is given back once by each holder"
        self._holders[page] -= 1
        if not self._holders[page]:
            self._free.append(page)

    def alone(self, page: int) -> bool:
        """Whether giving this page back frees it."""
        return self._holders[page] == 1


class Pages:
    """The pages of one stream, chunk by chunk; given back when it is closed or forgotten."""

    def __init__(self, pool: FlowPagePool, held: list[int] | None = None) -> None:
        self._pool = pool
        self.held = held or []  # page of each chunk; ZERO_PAGE where it was dropped
        self._dropped = 0  # chunks before this one are

    def append(self) -> None:
        self.held.append(self._pool.take())

    def cut(self, chunks: int) -> None:
        """Forgets all chunks from here on."""
        while len(self.held) > chunks:
            self._pool.give_back(self.held.pop())

    def drop_before(self, chunk: int) -> None:
        """Gives the oldest chunks' pages back; the numbers of the others stay."""
        for index in range(self._dropped, min(chunk, len(self.held))):
            self._pool.give_back(self.held[index])
            self.held[index] = ZERO_PAGE
            self._dropped = index + 1

    def fork(self) -> "Pages":
        for page in self.held:
            self._pool.share(page)
        return Pages(self._pool, list(self.held))

    def close(self) -> None:
        self.cut(0)

    @property
    def own(self) -> int:
        """Pages nobody else holds."""
        return sum(map(self._pool.alone, self.held))

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True)
class PageForm:
    layers: int  # attention layers, in the order in which they ask
    halves: int  # 1, or 2 where a stream is computed with and without guidance
    heads: int
    columns: int  # per chunk
    head_dim: int
    tail_values: int  # of all convolutions together, per half
    dtype: torch.dtype  # of keys and values; tails are float32

    @property
    def page_bytes(self) -> int:
        values = 2 * self.layers * self.halves * self.heads * self.columns * self.head_dim
        return values * self.dtype.itemsize + 4 * self.halves * self.tail_values


class PageStore:
    """The memory of all pages of a pool. Layers are tensors of their own: on a CPU the system then
    hands out memory as pages are first written."""

    def __init__(self, form: PageForm, pages: int, device: torch.device) -> None:
        self.form, count = form, pages + _NEVER_LENT
        shape = (2, count, form.halves, form.heads, form.columns, form.head_dim)
        try:
            self.layers = [
                torch.empty(shape, dtype=form.dtype, device=device) for _ in range(form.layers)
            ]  # keys, then values
            self.tails = torch.empty(count, form.halves, form.tail_values, device=device)
        except torch.OutOfMemoryError:
            raise MossliveError(
                f"no memory for {pages} pages of {form.page_bytes / 2**20:.1f} MiB on {device}; "
                f"load the codec with fewer pool_seconds"
            ) from None
        for layer in self.layers:
            layer[:, :_NEVER_LENT] = 0
        self.tails[:_NEVER_LENT] = 0

    @property
    def memory(self) -> list[Tensor]:
        return [*self.layers, self.tails]

    def lent(self, memory: Iterator[Tensor]) -> "PageStore":
        """The same store in the next tensors of `memory`."""
        twin = copy(self)
        twin.layers = [next(memory) for _ in self.layers]
        twin.tails = next(memory)
        return twin
