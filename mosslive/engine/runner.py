"""Runs the decoder over page tables: new rows through the trunk, missing rows through a tail.

Turns tables into flattened batches and records which rows are computed. The caller decides which
tables and which tail run, and when. The meaning of ids is not used. Engine thread.
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
    write: bool = True  # False: keys and values are stored already; only the output is needed


@dataclass(frozen=True)
class TrunkPass:
    """The latest pass of the trunk. A tail over exactly these rows, as in every decode step, uses
    its batch and its output instead of building and reading them again."""

    group: list[Work]
    batch: PagedBatch
    hidden: Tensor  # [T, H]


class Runner:
    """`chunk`: the most rows of one pass; more rows are split, with the same result."""

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
        """Appends `rows` to a table and takes their pages. Raises `OutOfPages` and changes nothing
        if too few are free. The rows must go through `trunk` next."""
        self.storage.apply(table.append(rows))

    def trunk(self, jobs: list[tuple[PageTable, int]]) -> TrunkPass | None:
        """Runs the rows of each table from the given first position on through the trunk."""
        trunk_pass = None
        works = [Work(table, list(range(first, len(table)))) for table, first in jobs]
        for group in self._passes(works):
            rows = [work.table.rows[p] for work in group for p in work.positions]
            trunk_pass = self._run_trunk(group, rows, self._parts(group))
        for table, _ in jobs:
            table.publish()
        return trunk_pass

    def _run_trunk(self, group: list[Work], rows: list[Row], parts: list[Part]) -> TrunkPass | None:
        """Runs one pass and writes its keys, values and output to the pages. A subclass may return
        None; then the tails read the output from the pages."""
        batch = make_batch(parts, self.pool.page_size, self.decoder)
        text, audio = upload(rows, self.decoder.device, torch.int64).T.contiguous()
        hidden = self.decoder.trunk(text, audio, self.storage.trunk, batch)
        write_pages(self.storage.hidden, hidden, batch.slots)
        return TrunkPass(group, batch, hidden)

    def tail(self, tail: Channel, tables: list[PageTable], but_last: bool = False) -> None:
        """Runs a tail over all missing rows of the tables, or over all but the last row."""
        while group := self._next_tail_group(tail, tables, but_last):
            self._run_tail(tail, group, [])

    def tail_logits(
        self, tail: Channel, tables: list[PageTable], trunk_pass: TrunkPass | None = None
    ) -> Tensor:
        """Runs a tail over all missing rows and returns the logits of each table's last row,
        float32 [n, V]."""
        last: dict[int, Tensor] = {}  # id of table → its last row after the tail, [H]
        while group := self._next_tail_group(tail, tables):
            ends = _ends(group)
            hidden = self._run_tail(tail, group, list(ends.values()), trunk_pass)
            last.update(zip(ends, hidden, strict=True))
        # A last row that was computed earlier (after a fork or a truncation) runs once more for
        # its output; its keys and values stay as they are.
        again = [Work(t, [len(t) - 1], write=False) for t in tables if id(t) not in last]
        for some in self._passes(again):
            ends = _ends(some)
            last.update(zip(ends, self._run_tail(tail, some, list(ends.values())), strict=True))
        hidden = torch.stack([last[id(table)] for table in tables])
        return self.decoder.logits(tail, hidden).float()

    def _next_tail_group(
        self, tail: Channel, tables: list[PageTable], but_last: bool = False
    ) -> list[Work]:
        """Returns the next pass of a tail and marks its rows as computed. So tables that share
        pages never compute a row twice. Within one pass keys are written before they are read, so a
        row may depend on rows that another table computes in the same pass."""
        group: list[Work] = []
        left = self.chunk
        for table in tables:
            positions = table.missing(tail, left)
            if but_last and positions and positions[-1] == len(table) - 1:
                positions.pop()
            if positions:
                table.mark(tail, positions)
                group.append(Work(table, positions))
                left -= len(positions)
            if not left:
                break
        return group

    def _run_tail(
        self,
        tail: Channel,
        group: list[Work],
        wanted: list[int],
        trunk_pass: TrunkPass | None = None,
    ) -> Tensor:
        """Runs one pass; returns its output at the rows `wanted`, [n, H]."""
        try:
            return self._compute_tail(tail, group, wanted, trunk_pass)
        except BaseException:
            for work in group:
                if work.write:
                    work.table.unmark(tail, work.positions)
            raise

    def _compute_tail(
        self, tail: Channel, group: list[Work], wanted: list[int], trunk_pass: TrunkPass | None
    ) -> Tensor:
        if trunk_pass is None or trunk_pass.group != group:
            trunk_pass = TrunkPass(group, self._batch(group), self._stored(group))
        hidden, pages = trunk_pass.hidden, self.storage.tails[tail]
        every = len(wanted) == len(hidden)  # as in every decode step
        rows = None if every else upload(wanted, hidden.device, torch.int64)
        return self.decoder.tail(tail, hidden, pages, trunk_pass.batch, rows)

    def _stored(self, group: list[Work]) -> Tensor:
        """Reads the trunk's output of a group from the pages, [T, H]."""
        slots = [work.table.slot(p) for work in group for p in work.positions]
        sources = upload(slots, self.decoder.device, torch.int64)
        return self.storage.hidden.flatten(0, 1).index_select(0, sources)

    def _passes(self, works: list[Work]) -> Iterator[list[Work]]:
        """Splits work into passes of at most `chunk` rows, in order within each table."""
        group: list[Work] = []
        left = self.chunk
        for work in works:
            rest = work.positions
            while rest:
                now, rest = rest[:left], rest[left:]
                group.append(Work(work.table, now, work.write))
                left -= len(now)
                if not left:
                    yield group
                    group, left = [], self.chunk
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
    """Returns id(table) → index in the pass, for each table whose last row is in it."""
    ends, end = {}, 0
    for work in group:
        end += len(work.positions)
        if work.positions[-1] == len(work.table) - 1:
            ends[id(work.table)] = end - 1
    return ends
