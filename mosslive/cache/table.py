"""The page table of one conversation: its rows, the pages they live in, and what is computed.

Invariant: row i is in pages[i // page_size] at offset i % page_size, and a page that another table
can see, or that is findable by content, is never written at a row it already holds.
"""

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from mosslive.cache.pool import ROOT, Node, PagePool
from mosslive.rows import CHANNELS, Channel, Row

_STAMPS = count()


class PageCopy(NamedTuple):
    """Tensor rows 0 .. rows-1 of page `source` must be copied to `target` before the next write."""

    source: int
    target: int
    rows: int


class PageTable:
    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.rows: list[Row] = []
        self.pages: list[int] = []
        self.stamp = next(_STAMPS)  # a new one whenever the pages change: equal stamps, equal pages
        self._nodes: list[Node] = []  # of the leading pages that are published
        # Rows a tail has computed (a lower bound that saves a search), and the value of
        # `taken_back` for which this is valid.
        self._tail_done: dict[Channel, int] = dict.fromkeys(CHANNELS, 0)
        self._as_of: dict[Channel, int] = pool.taken_back.copy()

    def __len__(self) -> int:
        return len(self.rows)

    def adopt(self, rows: Sequence[Row]) -> int:
        """Fills an empty table with the pages that already hold a prefix of `rows`. Returns the
        number of rows; the last row is always left to compute, because its logits are needed."""
        assert not self.rows, "only an empty table can adopt"
        size, node = self.pool.page_size, ROOT
        for first in range(0, len(rows) - size, size):
            piece = rows[first : first + size]
            found = self.pool.find(node, piece)
            if found is None:
                break
            page, node = found
            self.pool.hold(page)
            self.pages.append(page)
            self.rows += piece
            self._nodes.append(node)
        self.stamp = next(_STAMPS)
        return len(self.rows)

    def pages_for(self, count: int) -> int:
        """Pages that appending `count` rows would take."""
        if not count:
            return 0
        size = self.pool.page_size
        new = -(-(len(self.rows) + count) // size) - len(self.pages)
        return new + self._last_is_shared

    @property
    def _last_is_shared(self) -> bool:
        """A partly filled last page that another table also uses must not be written."""
        return bool(
            len(self.rows) % self.pool.page_size and self.pool.references[self.pages[-1]] > 1
        )

    @property
    def may_share_last(self) -> bool:
        """Whether a later append may take one page more than its rows need."""
        half_filled = len(self.rows) % self.pool.page_size != 0
        return half_filled and self.pool.may_be_shared(self.pages[-1])

    def own_last(self) -> None:
        """Before rows are appended to a table that was cut: no table finds its half-filled last
        page by content from now on."""
        offset = len(self.rows) % self.pool.page_size
        if offset and self.pool.references[self.pages[-1]] == 1:
            self.pool.overwrite(self.pages[-1], offset)

    def append(self, rows: Sequence[Row]) -> list[PageCopy]:
        """Adds rows; returns the page copies to do first. Raises `OutOfPages` and changes nothing
        if too few pages are free."""
        if not rows:
            return []
        pool = self.pool
        offset, wanted = len(self.rows) % pool.page_size, self.pages_for(len(rows))
        taken = pool.take(wanted) if wanted else []  # most rows of a reply need no page
        copies = []
        if wanted and self._last_is_shared:  # copy on write: a fork gets its own last page
            source, target = self.pages[-1], taken.pop(0)
            for tail_rows in pool.tail_rows.values():
                tail_rows[target] = min(tail_rows[source], offset)
            self.pages[-1] = target
            pool.release(source)
            copies.append(PageCopy(source, target, offset))
        elif offset:  # after a truncation the page may hold, and be found by, later rows
            pool.overwrite(self.pages[-1], offset)
        if taken or copies:
            self.pages += taken
            self.stamp = next(_STAMPS)
        self.rows += rows
        return copies

    def publish(self) -> None:
        """Makes full pages findable. To be called when the trunk has computed all rows."""
        size = self.pool.page_size
        for index in range(len(self._nodes), len(self.rows) // size):
            parent = self._nodes[-1] if self._nodes else ROOT
            rows = self.rows[index * size : (index + 1) * size]
            self._nodes.append(self.pool.publish(self.pages[index], parent, rows))

    def fork(self) -> "PageTable":
        """A second table over the same pages; copy on write."""
        forked = PageTable(self.pool)
        forked.rows, forked.pages, forked._nodes = self.rows[:], self.pages[:], self._nodes[:]
        forked.stamp = self.stamp
        forked._tail_done, forked._as_of = self._tail_done.copy(), self._as_of.copy()
        for page in forked.pages:
            self.pool.hold(page)
        return forked

    def truncate(self, length: int) -> None:
        """Removes all rows from `length` on."""
        if not 0 <= length <= len(self.rows):
            raise ValueError(f"truncate to {length} rows; allowed: 0..{len(self.rows)}")
        size = self.pool.page_size
        kept = -(-length // size)
        # Later pages first: when pages run short, the start of a conversation is reused last.
        for page in reversed(self.pages[kept:]):
            self.pool.release(page)
        if kept < len(self.pages):
            self.stamp = next(_STAMPS)
        del self.pages[kept:], self.rows[length:], self._nodes[length // size :]
        for tail in CHANNELS:
            self._tail_done[tail] = min(self._tail_done[tail], length)

    def free(self) -> None:
        """Releases every page. The table is empty afterwards and may be used again."""
        self.truncate(0)

    def slot(self, position: int) -> int:
        size = self.pool.page_size
        return self.pages[position // size] * size + position % size

    def has_last(self, tail: Channel) -> bool:
        """Whether that tail has computed the last row."""
        page, offset = divmod(len(self.rows) - 1, self.pool.page_size)
        return self.pool.tail_rows[tail][self.pages[page]] > offset

    def missing(self, tail: Channel, most: int) -> list[int]:
        """The first `most` positions whose keys and values that tail has not computed."""
        size, filled = self.pool.page_size, self.pool.tail_rows[tail]
        found: list[int] = []
        if self._as_of[tail] != self.pool.taken_back[tail]:
            self._as_of[tail], self._tail_done[tail] = self.pool.taken_back[tail], 0
        position = self._tail_done[tail]
        while position < len(self.rows) and len(found) < most:
            page, offset = self.pages[position // size], position % size
            end = min(position - offset + size, len(self.rows))
            begin = max(position, position - offset + filled[page])
            found += range(begin, end)
            if not found:
                self._tail_done[tail] = end
            position = end
        return found[:most]

    def mark(self, tail: Channel, positions: list[int]) -> None:
        """Marks these positions, which `missing` returned, as computed by a tail."""
        size, filled = self.pool.page_size, self.pool.tail_rows[tail]
        for position in positions:
            page, offset = self.pages[position // size], position % size
            assert filled[page] == offset, "tails are computed in order"
            filled[page] = offset + 1

    def unmark(self, tail: Channel, positions: list[int]) -> None:
        """Undoes `mark` after a failed computation. Other tables may have relied on it."""
        size, filled = self.pool.page_size, self.pool.tail_rows[tail]
        self.pool.taken_back[tail] += 1
        for position in positions:
            page = self.pages[position // size]
            filled[page] = min(filled[page], position % size)
