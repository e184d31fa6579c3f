"""Pages of a fixed pool: their reference counts, and their memory for a stack of layers.

A page stores one chunk: keys and values of every attention layer, and the last columns of every
convolution's input, so that a stream can continue after any page. Streams with a common beginning
share its pages; nothing is copied. Knows nothing of networks or of time.
Invariants: pages 0 and 1 are never allocated (0 is all zeros, padding writes to 1); a shared page
is never written; a freed page can be allocated again at once.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from mosslive.errors import MossliveError
from mosslive.kernels.flow_chunks import ZERO_PAGE

SCRATCH_PAGE = 1
_RESERVED = 2


class PoolFull(MossliveError):
    """No page is free for another chunk. Streams that end free theirs."""


class FlowPagePool:
    """Allocates the pages of the codec's flow by reference count; touches no tensor."""

    def __init__(self, pages: int, what: str) -> None:
        self.pages, self._what = pages, what
        self._holders = [0] * (pages + _RESERVED)
        self._free = list(range(pages + _RESERVED - 1, _RESERVED - 1, -1))

    @property
    def used(self) -> int:
        return self.pages - len(self._free)

    @property
    def free(self) -> int:
        return len(self._free)

    def require(self, count: int) -> None:
        """Raises `PoolFull` if fewer pages are free."""
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
        if page >= _RESERVED:
            self._holders[page] += 1

    def give_back(self, page: int) -> None:
        if page < _RESERVED:
            return
        assert self._holders[page] > 0, "a holder frees a page only once"
        self._holders[page] -= 1
        if not self._holders[page]:
            self._free.append(page)

    def alone(self, page: int) -> bool:
        """Whether the page has a single holder."""
        return self._holders[page] == 1


class Pages:
    """The pages of one stream, chunk by chunk; freed when it is closed or collected."""

    def __init__(self, pool: FlowPagePool, held: list[int] | None = None) -> None:
        self._pool = pool
        self.held = held or []  # page of each chunk; ZERO_PAGE if dropped
        self._dropped = 0  # chunks before this one are

    def append(self) -> None:
        self.held.append(self._pool.take())

    def cut(self, chunks: int) -> None:
        """Frees the pages of all chunks from this one on."""
        while len(self.held) > chunks:
            self._pool.give_back(self.held.pop())

    def drop_before(self, chunk: int) -> None:
        """Frees the pages of the chunks before this one; the indices of the others stay."""
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
        """Pages that are not shared."""
        return sum(map(self._pool.alone, self.held))

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True)
class PageForm:
    layers: int  # attention layers, in the order of their calls
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
    """The memory of all pages of a pool. Each layer is a tensor of its own, so that on a CPU the
    system allocates memory when pages are first written."""

    def __init__(self, form: PageForm, pages: int, device: torch.device) -> None:
        self.form, count = form, pages + _RESERVED
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
            layer[:, :_RESERVED] = 0
        self.tails[:_RESERVED] = 0

    @property
    def memory(self) -> list[Tensor]:
        return [*self.layers, self.tails]

    def over(self, memory: Iterator[Tensor]) -> "PageStore":
        """The same store over the next tensors of `memory`."""
        store = copy(self)
        store.layers = [next(memory) for _ in self.layers]
        store.tails = next(memory)
        return store
