"""Random operations on a small pool: every table reads its own history through its pages.

The tensors are modelled by dictionaries slot → history, the rows up to and including the one
computed there, which is exactly what a key depends on. Nothing here knows the internals of the
pool, except reference counts and the marks of the tails.
"""

import copy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from mosslive.cache import OutOfPages, PageCopy, PagePool, PageTable
from mosslive.cache.pool import ROOT
from mosslive.rows import CHANNELS, Channel, Row

History = tuple[Row, ...]
Slot = tuple[int, int]  # page, offset

LETTERS: list[Row] = [(0, 0), (1, 0)]
MOST_TABLES = 4

which = st.integers(0, MOST_TABLES - 1)
some_rows = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=6)
tails = st.sampled_from(CHANNELS)


class Pages(RuleBasedStateMachine):
    """No page is lost or freed twice, and no table reads what is not its own history."""

    @initialize(pages=st.integers(1, 9), page_size=st.integers(1, 4))
    def start(self, pages: int, page_size: int) -> None:
        self.pool = PagePool(pages, page_size)
        self.tables = [PageTable(self.pool)]
        self.published: set[History] = set()
        # None: a computation failed while writing there.
        self.stores: dict[str, dict[Slot, History | None]] = {
            name: {} for name in ("trunk", *CHANNELS)
        }

    # What the storage would do.

    def slots(self, table: PageTable) -> list[Slot]:
        size = self.pool.page_size
        return [divmod(table.slot(position), size) for position in range(len(table))]

    def write(self, store: str, table: PageTable, positions: list[int], torn: bool = False) -> None:
        slots = self.slots(table)
        for position in positions:
            history = tuple(table.rows[: position + 1])
            self.stores[store][slots[position]] = None if torn else history

    def copy(self, copies: list[PageCopy]) -> None:
        for source, target, rows in copies:
            for store in self.stores.values():
                for offset in range(rows):
                    if (source, offset) in store:
                        store[target, offset] = store[source, offset]

    def snapshot(self) -> Any:
        tables = [{k: v for k, v in vars(t).items() if k != "pool"} for t in self.tables]
        return copy.deepcopy((vars(self.pool), tables))

    def pick(self, index: int) -> PageTable:
        return self.tables[index % len(self.tables)]

    # What conversations do.

    @rule(index=which, rows=some_rows, publish=st.booleans())
    def append(self, index: int, rows: list[Row], publish: bool) -> None:
        table, before = self.pick(index), self.snapshot()
        old, refusal = len(table), None
        try:
            self.copy(table.append(rows))
        except OutOfPages as caught:
            refusal = caught
        if refusal:
            assert self.snapshot() == before
            assert refusal.wanted > refusal.free == self.pool.free
        self.write("trunk", table, list(range(old, len(table))))
        if publish:
            self.publish(index)

    @rule(index=which)
    def publish(self, index: int) -> None:
        table, size = self.pick(index), self.pool.page_size
        table.publish()
        self.published |= {tuple(table.rows[:end]) for end in range(size, len(table) + 1, size)}

    @precondition(lambda self: len(self.tables) < MOST_TABLES)
    @rule(known=st.integers(0, 99), more=some_rows)
    def adopt(self, known: int, more: list[Row]) -> None:
        """Half of the time the rows of a published history, else any rows."""
        histories = [(), *sorted(self.published)]
        rows = [*histories[max(0, known - 50) % len(histories)], *more]
        table = PageTable(self.pool)
        count = table.adopt(rows)
        assert count % self.pool.page_size == 0
        assert count < len(rows)
        assert table.rows == rows[:count]
        self.tables.append(table)

    @precondition(lambda self: len(self.tables) < MOST_TABLES)
    @rule(index=which)
    def fork(self, index: int) -> None:
        table, free = self.pick(index), self.pool.free
        self.tables.append(table.fork())
        assert self.pool.free == free

    @rule(index=which, keep=st.integers(0, 30))
    def truncate(self, index: int, keep: int) -> None:
        table = self.pick(index)
        kept = table.rows[: keep % (len(table) + 1)]
        table.truncate(len(kept))
        assert table.rows == kept

    @precondition(lambda self: len(self.tables) > 1)
    @rule(index=which)
    def leave(self, index: int) -> None:
        table = self.pick(index)
        table.free()
        assert (table.rows, table.pages) == ([], [])
        self.tables.remove(table)

    @rule(
        tail=tails,
        indices=st.lists(which, min_size=1, max_size=3),
        room=st.integers(1, 9),
        fails=st.booleans(),
    )
    def run_tail(self, tail: Channel, indices: list[int], room: int, fails: bool) -> None:
        """One pass over several tables: rows are claimed in turn, then written together."""
        claims: list[tuple[PageTable, list[int]]] = []
        for table in map(self.pick, indices):
            positions = table.missing(tail, room)
            room -= len(positions)
            table.mark(tail, positions)
            claims.append((table, positions))
            self.write(tail, table, positions, torn=fails)
        if fails:
            for table, positions in claims:
                table.unmark(tail, positions)
            return
        for table, positions in claims:  # everything a row rests on is there, or in this pass
            for position, slot in enumerate(self.slots(table)[: max(positions, default=-1) + 1]):
                assert self.stores[tail].get(slot) == tuple(table.rows[: position + 1])

    # What must hold after each of them.

    @invariant()
    def pages_are_all_there(self) -> None:
        held = [page for table in self.tables for page in table.pages]
        assert self.pool.references == [held.count(page) for page in range(self.pool.total)]
        assert self.pool.free == self.pool.references.count(0)
        for table in self.tables:
            assert len(table.pages) == -(-len(table) // self.pool.page_size)

    @invariant()
    def tables_read_their_own_history(self) -> None:
        for table in self.tables:
            for position, slot in enumerate(self.slots(table)):
                assert self.stores["trunk"].get(slot) == tuple(table.rows[: position + 1])

    @invariant()
    def marked_slots_hold_what_the_trunk_holds(self) -> None:
        for tail in CHANNELS:
            for page, rows in enumerate(self.pool.tail_rows[tail]):
                for slot in ((page, offset) for offset in range(rows)):
                    assert self.stores[tail].get(slot) == self.stores["trunk"][slot]

    @invariant()
    def rows_not_missing_are_computed(self) -> None:
        for tail in CHANNELS:
            for table in self.tables:
                # `missing` may remember what it found: ask a copy, so that asking changes nothing.
                copied = copy.deepcopy(table, {id(self.pool): self.pool})
                missing = copied.missing(tail, len(table))
                if len(table):
                    assert table.has_last(tail) == (len(table) - 1 not in missing)
                for position, slot in enumerate(self.slots(table)):
                    if position not in missing:
                        expected = tuple(table.rows[: position + 1])
                        assert self.stores[tail].get(slot) == expected

    @invariant()
    def what_is_found_is_what_was_asked_for(self) -> None:
        size = self.pool.page_size
        for history in self.published:
            node = ROOT
            for first in range(0, len(history), size):
                found = self.pool.find(node, history[first : first + size])
                if found is None:
                    break
                page, node = found
                for offset in range(size):
                    expected = history[: first + offset + 1]
                    assert self.stores["trunk"][page, offset] == expected

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for table in self.tables:
            table.free()
        assert self.pool.free == self.pool.total
        assert sorted(self.pool.take(self.pool.total)) == list(range(self.pool.total))


TestPages = Pages.TestCase
TestPages.settings = settings(
    max_examples=250, stateful_step_count=40, deadline=None, derandomize=True
)
