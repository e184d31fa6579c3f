"""The runner for CPUs: passes of one row, as in every decode step, run as TorchScript traces.

A pass of one row is about 400 small operations. As a trace they take half the time, and they do not
hold Python's lock, for which the codec's thread would wait. Longer passes run as in `Runner`.
Invariant: the traces are made from the definitions, so a row is the same either way.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from mosslive.cache import PagePool
from mosslive.engine.batch import Part
from mosslive.engine.runner import Runner, TrunkPass, Work
from mosslive.kernels import LayerPages, PagedBatch, Span, write_pages
from mosslive.kernels.trace import Traced
from mosslive.model import Decoder
from mosslive.rows import CHANNELS, Channel, Row

_NO_END = 1 << 62  # so that no length becomes a constant of the trace
_NO_ROW: Row = (0, 0)  # for a tail, which reads no ids


class TracedRunner(Runner):
    def __init__(self, decoder: Decoder, pool: PagePool, chunk: int) -> None:
        super().__init__(decoder, pool, chunk)
        storage = self.storage
        scratch = storage.scratch_slot  # tracing runs the passes; they write here
        storage.hidden[-1] = 0  # read before anything is written
        slots = torch.tensor([0, 0, 0, scratch, scratch, scratch])
        # A trace keeps only writes to its arguments, so the written tensors are arguments.
        self._pages = {c: [storage.hidden, *_flat(storage.tails[c])] for c in CHANNELS}
        self._trunk_pages = [storage.hidden, *_flat(storage.trunk)]
        self._trunk_step = Traced(self._one_trunk, slots, *self._trunk_pages)
        self._tail_steps = {
            tail: Traced(partial(self._one_tail, tail), slots, *self._pages[tail])
            for tail in CHANNELS
        }

    def _run_trunk(self, group: list[Work], rows: list[Row], parts: list[Part]) -> TrunkPass | None:
        if len(rows) != 1:
            return super()._run_trunk(group, rows, parts)
        self._trunk_step(self._numbers(group[0], rows[0]), *self._trunk_pages)
        return None

    def _compute_tail(
        self, tail: Channel, group: list[Work], wanted: list[int], trunk_pass: TrunkPass | None
    ) -> Tensor:
        if len(group) != 1 or len(group[0].positions) != 1 or not wanted:
            return super()._compute_tail(tail, group, wanted, trunk_pass)
        return self._tail_steps[tail](self._numbers(group[0], _NO_ROW), *self._pages[tail])

    def _numbers(self, work: Work, row: Row) -> Tensor:
        """Returns int64: the row's two ids, its position, its slot, the slot to write, and the
        slots of all rows that it sees."""
        size, (position,) = self.pool.page_size, work.positions
        held = np.asarray(work.table.pages[: position // size + 1], np.int64)
        seen = (held[:, None] * size + np.arange(size)).reshape(-1)[: position + 1]
        written = seen[-1] if work.write else self.storage.scratch_slot
        return torch.from_numpy(np.concatenate(((*row, position, seen[-1], written), seen)))

    # The traced functions.

    def _one_trunk(self, numbers: Tensor, outputs: Tensor, *pages: Tensor) -> Tensor:
        batch = _batch(numbers)
        hidden = self.decoder.trunk(numbers[:1], numbers[1:2], _by_row(pages), batch)
        write_pages(outputs, hidden, batch.slots)
        return hidden

    def _one_tail(self, tail: Channel, numbers: Tensor, outputs: Tensor, *pages: Tensor) -> Tensor:
        hidden = outputs.flatten(0, 1).index_select(0, numbers[3:4])
        return self.decoder.tail(tail, hidden, _by_row(pages), _batch(numbers), spare=True)


def _batch(numbers: Tensor) -> PagedBatch:
    return PagedBatch(numbers[2:3], numbers[4:5], [Span(0, 1, numbers[5:], _NO_END, None)])


def _flat(layers: list[LayerPages]) -> list[Tensor]:
    return [half for layer in layers for half in layer]


def _by_row(pages: Sequence[Tensor]) -> list[LayerPages]:
    """Returns alternating keys and values as pages of one row, so that slots are page numbers."""
    rows = [each.flatten(0, 1)[:, None] for each in pages]
    return [LayerPages(k, v) for k, v in zip(rows[::2], rows[1::2], strict=True)]
