"""A fixed pool of pages: who holds which, which are free, and which rows a page is known to hold.

Pure bookkeeping: it never touches a tensor. A page is in exactly one of two states: held by one or
more tables (references > 0), or free. A free page keeps its content until it is taken again, so a
system prompt survives the conversation that first used it.
"""

from collections import OrderedDict
from collections.abc import Sequence

from mosslive.errors import MossliveError
from mosslive.rows import CHANNELS, Channel, Row


class OutOfPages(MossliveError):
    """The pool cannot give that many pages now. Nothing was changed."""

    def __init__(self, wanted: int, free: int, total: int, page_size: int) -> None:
        self.wanted, self.free, self.total = wanted, free, total
        super().__init__(
            f"{wanted} pages wanted and {free} of {total} free ({page_size} rows each); end or "
            f"truncate a conversation, or make the pool larger (kv_rows)"
        )


# Identity of a published page's content together with everything before it. Never reused.
Node = int
ROOT: Node = 0


class PagePool:
    def __init__(self, pages: int, page_size: int) -> None:
        if pages < 1 or page_size < 1:
            raise ValueError(f"a pool of {pages} pages of {page_size} rows; allowed: 1 or more")
        self.page_size = page_size
        self.references = [0] * pages
        # Rows at the start of each page whose keys and values a tail has computed.
        self.tail_rows: dict[Channel, list[int]] = {tail: [0] * pages for tail in CHANNELS}
        # How often marks of a tail were taken back; what tables remember of it is then void.
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
        """One more reference; a free page that was found by content comes back into use."""
        self._free.pop(page, None)
        self.references[page] += 1

    def release(self, page: int) -> None:
        assert self.references[page] > 0, f"page {page} released more often than held"
        self.references[page] -= 1
        if not self.references[page]:
            self._free[page] = None

    def overwrite(self, page: int, kept: int) -> None:
        """Says that rows `kept` and later of a page will change: its content is known no more."""
        if published := self._published.pop(page, None):
            del self._page_of[published[1]]
        for rows in self.tail_rows.values():
            if rows[page] > kept:
                rows[page] = kept

    def publish(self, page: int, parent: Node, rows: Sequence[Row]) -> Node:
        """Makes a full, computed page findable. Returns the node of this content: the one that
        exists already if another page holds the same, so that what follows is found under it."""
        key = (parent, tuple(rows))
        assert len(key[1]) == self.page_size, "only full pages are published"
        assert self.references[page], "only held pages are published"
        if (twin := self._page_of.get(key)) is not None:
            return self._published[twin][0]
        if known := self._published.get(page):
            # Shared by a fork that published it under a past since forgotten: one key per page,
            # or the old one would lead here when the page holds something else.
            del self._page_of[known[1]]
        self._last_node += 1
        self._page_of[key] = page
        self._published[page] = (self._last_node, key)
        return self._last_node

    def may_be_shared(self, page: int) -> bool:
        """Whether another table sees this page, or could come to see it by content."""
        return self.references[page] > 1 or page in self._published

    def find(self, parent: Node, rows: Sequence[Row]) -> tuple[int, Node] | None:
        """The page that holds exactly these rows after exactly that past, and its node."""
        page = self._page_of.get((parent, tuple(rows)))
        return None if page is None else (page, self._published[page][0])
