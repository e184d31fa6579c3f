"""Runs the decoder over page tables: new rows through the trunk, missing rows through a tail.

Turns tables into flattened batches and keeps the books of what is computed. It decides nothing:
which tables, which tail and when is the caller's business. It never looks at an id's meaning.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mosslive.cache import PagePool, PageStorage, PageTable
from mosslive.engine.batch import Part, make_batch
from mosslive.kernels import PagedBatch, upload, write_pages
from mosslive.model import Decoder
from mosslive.rows import Channel, Row


@dataclass(frozen=True)
class Work:
    """Positions of one table that go through the decoder in one pass."""

    table: PageTable
    positions: list[int]
    write: bool = True  # False: keys and values are there already, only the result is wanted


@dataclass(frozen=True)
class Fresh:
    """The trunk's latest pass. A tail that wants exactly these rows, as in every step of a reply,
    need not build the batch again or read the trunk's output back from the pages."""

    group: list[Work]
    batch: PagedBatch
    hidden: Tensor  # [T, H]


class Runner:
    """`chunk`: the most rows one pass takes; longer work is cut, with the same result."""

    def __init__(self, decoder: Decoder, pool: PagePool, chunk: int) -> None:
        if chunk < 1:
            raise ValueError(f"chunk is {chunk}; allowed: 1 or more rows")
        self.decoder = decoder
        self.pool = pool
        self.chunk = chunk
        self.storage = PageStorage(
            decoder.config, pool.total, pool.page_size, decoder.device, decoder.dtype
        )

    def reserve(self, table: PageTable, rows: Sequence[Row]) -> None:
        """Room for `rows` at the end of a table; raises `OutOfPages` and changes nothing if there
        is none. The rows must go through `trunk` next."""
        self.storage.apply(table.append(rows))

    def trunk(self, jobs: list[tuple[PageTable, int]]) -> Fresh | None:
        """(table, first new position) → all rows from there on through the trunk."""
        fresh = None
        works = [Work(table, list(range(first, len(table)))) for table, first in jobs]
        for group in self._passes(works):
            rows = [work.table.rows[p] for work in group for p in work.positions]
            fresh = self._run_trunk(group, rows, self._parts(group))
        for table, _ in jobs:
            table.publish()
        return fresh

    def _run_trunk(self, group: list[Work], rows: list[Row], parts: list[Part]) -> Fresh | None:
        """One pass; its keys, values and output are in the pages afterwards. A form that hands on
        nothing but that may return None."""
        batch = make_batch(parts, self.pool.page_size, self.decoder)
        text, audio = upload(rows, self.decoder.device, torch.int64).T.contiguous()
        hidden = self.decoder.trunk(text, audio, self.storage.trunk, batch)
        write_pages(self.storage.hidden, hidden, batch.slots)
        return Fresh(group, batch, hidden)

    def tail(self, tail: Channel, tables: list[PageTable], but_last: bool = False) -> None:
        """Brings a tail up to date with every row of the tables, or with all but the last."""
        while group := self._claim(tail, tables, but_last):
            self._run_tail(tail, group, [])

    def tail_logits(
        self, tail: Channel, tables: list[PageTable], fresh: Fresh | None = None
    ) -> Tensor:
        """Brings a tail up to date and returns the logits of each table's last row,
        float32 [n, V]."""
        last: dict[int, Tensor] = {}  # id of table → its last row after the tail, [H]
        while group := self._claim(tail, tables):
            ends = _ends(group)
            hidden = self._run_tail(tail, group, list(ends.values()), fresh)
            last.update(zip(ends, hidden, strict=True))
        # A last row that was computed earlier (after a fork or a truncation) runs once more for
        # its output; its keys and values stay as they are.
        again = [Work(t, [len(t) - 1], write=False) for t in tables if id(t) not in last]
        for some in self._passes(again):
            ends = _ends(some)
            last.update(zip(ends, self._run_tail(tail, some, list(ends.values())), strict=True))
        hidden = torch.stack([last[id(table)] for table in tables])
        return self.decoder.logits(tail, hidden).float()

    def _claim(self, tail: Channel, tables: list[PageTable], but_last: bool = False) -> list[Work]:
        """The next pass of a tail. Rows are marked as they are claimed: tables that share pages
        then never compute a row twice, and within one pass keys are written before they are read,
        so a row may rest on rows that another table claimed."""
        group: list[Work] = []
        room = self.chunk
        for table in tables:
            positions = table.missing(tail, room)
            if but_last and positions and positions[-1] == len(table) - 1:
                positions.pop()
            if positions:
                table.mark(tail, positions)
                group.append(Work(table, positions))
                room -= len(positions)
            if not room:
                break
        return group

    def _run_tail(
        self, tail: Channel, group: list[Work], wanted: list[int], fresh: Fresh | None = None
    ) -> Tensor:
        """One pass; its output at the rows `wanted` [n, H]."""
        try:
            return self._compute_tail(tail, group, wanted, fresh)
        except BaseException:
            for work in group:
                if work.write:
                    work.table.unmark(tail, work.positions)
            raise

    def _compute_tail(
        self, tail: Channel, group: list[Work], wanted: list[int], fresh: Fresh | None
    ) -> Tensor:
        if fresh is None or fresh.group != group:
            fresh = Fresh(group, self._batch(group), self._stored(group))
        hidden, pages = fresh.hidden, self.storage.tails[tail]
        every = len(wanted) == len(hidden)  # as in every step of a reply
        rows = None if every else upload(wanted, hidden.device, torch.int64)
        return self.decoder.tail(tail, hidden, pages, fresh.batch, rows)

    def _stored(self, group: list[Work]) -> Tensor:
        """The trunk's output for the rows of a group, from the pages, [T, H]."""
        slots = [work.table.slot(p) for work in group for p in work.positions]
        sources = upload(slots, self.decoder.device, torch.int64)
        return self.storage.hidden.flatten(0, 1).index_select(0, sources)

    def _passes(self, works: list[Work]) -> Iterator[list[Work]]:
        """Cuts work into passes of at most `chunk` rows, keeping the order within each table."""
        group: list[Work] = []
        room = self.chunk
        for work in works:
            rest = work.positions
            while rest:
                now, rest = rest[:room], rest[room:]
                group.append(Work(work.table, now, work.write))
                room -= len(now)
                if not room:
                    yield group
                    group, room = [], self.chunk
        if group:
            yield group

    def _batch(self, group: list[Work]) -> PagedBatch:
        return make_batch(self._parts(group), self.pool.page_size, self.decoder)

    def _parts(self, group: list[Work]) -> list[Part]:
        scratch = self.storage.scratch_slot
        return [
            Part(
                work.table.pages,
                work.positions,
                [work.table.slot(p) if work.write else scratch for p in work.positions],
            )
            for work in group
        ]


def _ends(group: list[Work]) -> dict[int, int]:
    """Id of each table whose last row is in the pass → where it is."""
    ends, end = {}, 0
    for work in group:
        end += len(work.positions)
        if work.positions[-1] == len(work.table) - 1:
            ends[id(work.table)] = end - 1
    return ends
