"""Pages of the encoder: what the segments of all turns store on the device, taken by need.

A page stores 16 codes of one segment: keys and values of every layer, the frames before the floor,
and two numbers for each block. Knows neither samples nor steps. Invariants: page 0 is never taken
(rows that fill up a step write there); a page belongs to one segment; a page that is given back can
be taken at once, because the device does all steps in the order of their launch.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from mosslive.codec.encoder import BLOCK_FRAMES, POOL, Encoder
from mosslive.codec.encoder_layers import Past
from mosslive.codec.flow_pages import PoolFull
from mosslive.config import SECONDS_PER_CODE, refuse
from mosslive.errors import MossliveError

PAGE_CODES = 16
POOL_SECONDS = 600.0  # speech of all turns together: 128 turns of 4.7 s
_RESERVED = 1


class EncoderPagePool:
    """Which pages are free; touches no tensor."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self._free = list(range(pages + _RESERVED - 1, _RESERVED - 1, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    def require(self, count: int) -> None:
        """Raises `PoolFull` if fewer pages are free."""
        if count > self.free:
            raise PoolFull(
                f"{self.pages - self.free} of {self.pages} pages of the encoder are in use and "
                f"{count} more are needed; finish or cancel turns, or use more pool_seconds"
            )

    def take(self) -> int:
        self.require(1)
        return self._free.pop()

    def give_back(self, pages: list[int]) -> None:
        self._free += pages


class SegmentPages:
    """The pages of one segment, in the order of its codes."""

    def __init__(
        self, pool: EncoderPagePool, most: int, clear: Callable[[int], None] | None = None
    ) -> None:
        """`clear`: called with each page before its first use."""
        self._pool, self._clear = pool, clear
        self.held: list[int] = []
        self.table: NDArray[np.int32] = np.zeros(most, np.int32)  # `held`, then zeros

    @property
    def room(self) -> int:
        """Codes that fit, with all free pages."""
        return PAGE_CODES * (len(self.held) + self._pool.free)

    def missing(self, codes: int) -> int:
        """Pages that are needed in addition for so many codes."""
        return max(0, -(-codes // PAGE_CODES) - len(self.held))

    def grow(self, codes: int) -> None:
        for _ in range(self.missing(codes)):
            self.table[len(self.held)] = page = self._pool.take()
            self.held.append(page)
            if self._clear:
                self._clear(page)

    def place(self, code: int) -> int:
        """The index of a code in the memory of the blocks; -1 for the one before the first."""
        if code < 0:
            return -1
        return self.held[code // PAGE_CODES] * PAGE_CODES + code % PAGE_CODES

    def close(self) -> None:
        """Idempotent."""
        self._pool.give_back(self.held)
        self.held = []


def pages_for(encoder: Encoder, pool_seconds: float) -> int:
    """Pages for so much speech; a whole segment fits in any case."""
    seconds = PAGE_CODES * SECONDS_PER_CODE
    return max(math.ceil(pool_seconds / seconds), -(-encoder.dims.segment_codes // PAGE_CODES))


def page_bytes(encoder: Encoder) -> int:
    dims, kept = encoder.dims, encoder.conv1.weight.element_size()
    keys_and_values = 2 * dims.layers * dims.width * POOL * PAGE_CODES * kept
    return keys_and_values + 4 * PAGE_CODES * (dims.mel_bands * BLOCK_FRAMES + 2)


class EncoderMemory:
    """The memory of all pages. Zeros, because a masked value still takes part in a product, and
    0 · NaN is NaN; on a CPU the system allocates a page when it is first written."""

    def __init__(self, encoder: Encoder, pool_seconds: float) -> None:
        if not pool_seconds > 0:
            raise refuse("pool_seconds", pool_seconds, "above 0")
        dims, like = encoder.dims, encoder.conv1.weight
        self.segment_pages = -(-dims.segment_codes // PAGE_CODES)
        pages = pages_for(encoder, pool_seconds)
        self.pool = EncoderPagePool(pages)
        count = pages + _RESERVED
        kv = (count, dims.heads, POOL * PAGE_CODES, dims.head_dim)
        blocks = count * PAGE_CODES
        try:
            self.layers = [(like.new_zeros(kv), like.new_zeros(kv)) for _ in range(dims.layers)]
            wide = like.new_zeros(0, dtype=torch.float32)
            # By block. Frames are in the order of a step: column i of block c is frame 8c-1+i.
            # Column 0 of the first block, which is no frame, repeats column 1.
            self.log10 = wide.new_zeros(blocks, dims.mel_bands, BLOCK_FRAMES)
            self.lowest = wide.new_zeros(blocks)  # in the frames of the block
            self.loudest = wide.new_zeros(blocks)  # up to and with the frames of the block
        except torch.OutOfMemoryError:
            raise MossliveError(
                f"no memory for {pages} pages of {page_bytes(encoder) / 2**20:.1f} MiB on "
                f"{like.device}; use fewer pool_seconds than {pool_seconds:g}"
            ) from None

    def open(self) -> SegmentPages:
        """A segment without pages."""
        clear = self._clear if self.log10.device.type == "cpu" else None
        return SegmentPages(self.pool, self.segment_pages, clear)

    def _clear(self, page: int) -> None:
        """A turn that failed may leave NaN in its pages, which would reach the next one through
        masked values. The Triton kernel does not load those."""
        for k, v in self.layers:
            k[page] = v[page] = 0

    def copy(self, pages: SegmentPages) -> SegmentPages:
        """A segment of its own with the same contents. Raises `PoolFull` without an effect."""
        self.pool.require(len(pages.held))
        copied = self.open()
        copied.grow(PAGE_CODES * len(pages.held))
        if pages.held:
            device = self.log10.device
            # Pinned, so that the host does not wait for the steps before.
            both = torch.tensor([pages.held, copied.held], pin_memory=device.type == "cuda")
            old, new = both.to(device, non_blocking=True).unbind()
            by_page = (one.view(-1, PAGE_CODES, *one.shape[1:]) for one in self._by_block)
            for stored in (*(one for layer in self.layers for one in layer), *by_page):
                stored[new] = stored[old]
        return copied

    @property
    def _by_block(self) -> tuple[torch.Tensor, ...]:
        return self.log10, self.lowest, self.loudest

    def pasts(self, position: torch.Tensor, pages: torch.Tensor) -> list[Past]:
        return [Past(k, v, position, pages=pages) for k, v in self.layers]
