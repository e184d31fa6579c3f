"""A fixed pool of KV pages: references, free pages, and a prefix index of their content.

Bookkeeping only: it never touches a tensor. A page is in exactly one of two states: held by one or
more tables (references > 0), or free. A free page keeps its content until it is taken again, so a
system prompt survives the conversation that first used it.
"""

from collections import OrderedDict
from collections.abc import Sequence

from mosslive.errors import MossliveError
from mosslive.rows import CHANNELS, Channel, Row


class OutOfPages(MossliveError):
    """Too few pages are free. Nothing was changed."""

    def __init__(self, wanted: int, free: int, total: int, page_size: int) -> None:
        self.wanted, self.free, self.total = wanted, free, total
        super().__init__(
            f"{wanted} pages wanted and {free} of {total} free ({page_size} rows each); end or "
            f"truncate a conversation, or make the pool larger (kv_rows)"
        )


# Identifies a published page's content together with its whole prefix. Never reused.
Node = int
ROOT: Node = 0


class PagePool:
    """Allocates the pages of the language model's KV cache."""

    def __init__(self, pages: int, page_size: int) -> None:
        if pages < 1 or page_size < 1:
            raise ValueError(f"a pool of {pages} pages of {page_size} rows; allowed: 1 or more")
        self.page_size = page_size
        self.references = [0] * pages
        # Rows at the start of each page whose keys and values a tail has computed.
        self.tail_rows: dict[Channel, list[int]] = {tail: [0] * pages for tail in CHANNELS}
        # How often a tail's marks were taken back; what tables cached of them is then invalid.
        self.taken_back: dict[Channel, int] = dict.fromkeys(CHANNELS, 0)
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(pages))  # oldest first
        self._page_of: dict[tuple[Node, tuple[Row, ...]], int] = {}
        self._published: dict[int, tuple[Node, tuple[Node, tuple[Row, ...]]]] = {}
        self._last_node = ROOT

    @property
    def total(self) -> int:
        return len(self.references)

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """`count` empty pages with one reference each, the longest unused first; all or none."""
        if count > self.free:
            raise OutOfPages(count, self.free, self.total, self.page_size)
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for page in taken:
            self.overwrite(page, 0)
            self.references[page] = 1
        return taken

    def hold(self, page: int) -> None:
        """Adds a reference; a free page that was found by content is in use again."""
        self._free.pop(page, None)
        self.references[page] += 1

    def release(self, page: int) -> None:
        assert self.references[page] > 0, f"page {page} released more often than held"
        self.references[page] -= 1
        if not self.references[page]:
            self._free[page] = None

    def overwrite(self, page: int, kept: int) -> None:
        """Must be called before rows `kept` and later of a page change: unpublishes its content."""
        if published := self._published.pop(page, None):
            del self._page_of[published[1]]
        for rows in self.tail_rows.values():
            if rows[page] > kept:
                rows[page] = kept

    def publish(self, page: int, parent: Node, rows: Sequence[Row]) -> Node:
        """Makes a full, computed page findable. Returns the node of this content: the existing
        one if another page holds the same, so that later pages are found under it."""
        key = (parent, tuple(rows))
        assert len(key[1]) == self.page_size, "only full pages are published"
        assert self.references[page], "only held pages are published"
        if (existing := self._page_of.get(key)) is not None:
            return self._published[existing][0]
        if known := self._published.get(page):
            # A fork published this page under a prefix that is gone. A page has one key, or the old
            # one would lead here when the page holds something else.
            del self._page_of[known[1]]
        self._last_node += 1
        self._page_of[key] = page
        self._published[page] = (self._last_node, key)
        return self._last_node

    def may_be_shared(self, page: int) -> bool:
        """Whether another table uses this page, or could find it by content."""
        return self.references[page] > 1 or page in self._published

    def find(self, parent: Node, rows: Sequence[Row]) -> tuple[int, Node] | None:
        """The page that holds exactly these rows after exactly that prefix, and its node."""
        page = self._page_of.get((parent, tuple(rows)))
        return None if page is None else (page, self._published[page][0])
