"""The stepper of a GPU: decode steps as recorded graphs, everything else as `PlainStepper` does it.

Turns requests into the numbers a recorded step reads and back. It makes the same rows as the plain
stepper, up to rounding. The host touches each request a few times per step and no history.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from mosslive.cache import OutOfPages, PageTable
from mosslive.engine.graph_runner import GraphRunner
from mosslive.engine.request import Request
from mosslive.engine.seen_ids import SeenIds
from mosslive.engine.step_buffers import StepBuffers
from mosslive.engine.step_graphs import StepGraphs
from mosslive.engine.stepper import Made, PlainStepper
from mosslive.kernels import NonFiniteLogits
from mosslive.kernels.graph import GraphRecorder
from mosslive.rows import CHANNELS, Channel, Row


class GraphStepper:
    def __init__(self, runner: GraphRunner, most: int = 256) -> None:
        """`most`: requests in one step."""
        self.runner = runner
        self.config, self.pool = runner.decoder.config, runner.pool
        self.most_requests, self.most_rows = most, runner.chunk
        self._plain = PlainStepper(runner)
        scratch, device = runner.storage.scratch_slot, runner.decoder.device
        idle_page = scratch // self.pool.page_size
        self._buffers = StepBuffers(most, runner.pages_per_request, idle_page, scratch, device)
        sizes: dict[Channel, int] = {
            "text": self.config.vocab_size,
            "audio": self.config.audio_vocab_size,
        }
        self._history = SeenIds(most, sizes, device)
        self.graphs = StepGraphs(runner.decoder, runner.storage, self._buffers, self._history)
        self._stamps = [-1] * most  # of the page table that stands in each row
        # The requests whose settings stand in the fields of each tail.
        self._settled: dict[Channel, list[Request]] = {channel: [] for channel in CHANNELS}

    def record(self, progress: Callable[[int], None] = lambda done: None) -> None:
        """Records the graphs, which takes seconds; steps before this run without them. `progress`
        is told how many are done. Without a GPU there is nothing to record."""
        if self.runner.decoder.device.type == "cuda":
            recorder = GraphRecorder(self.runner.decoder.device, progress)
            self.runner.record(recorder)
            self.graphs.record(recorder)

    def prefill(self, jobs: Sequence[tuple[PageTable, Sequence[Row]]]) -> None:
        self._plain.prefill(jobs)

    @torch.inference_mode()
    def decode(self, requests: Sequence[Request]) -> list[Made]:
        made: dict[int, Made] = {}
        begun: list[tuple[Request, int]] = []
        claimed: list[tuple[Channel, PageTable]] = []
        try:
            for request in requests:
                try:
                    begun.append((request, self._enter(request)))
                except OutOfPages as refusal:
                    made[id(request)] = refusal
            chosen = self._step(begun, claimed) if begun else []
        except BaseException:
            for channel, table in claimed:
                table.unmark(channel, [len(table) - 1])
            for request, first in begun:
                request.table.truncate(first)
            raise
        for (request, _), (text, audio) in zip(begun, chosen, strict=True):
            request.table.publish()
            request.waiting.clear()
            made[id(request)] = _accepted(request, text, audio)
        return [made[id(request)] for request in requests]

    def release(self, request: Request) -> None:
        self._history.release(request)
        for settled in self._settled.values():
            settled.clear()

    def _enter(self, request: Request) -> int:
        """Runs all but the newest row that waits, and finds that one a page. Returns the rows that
        are through the trunk: all, if none waits (after a fork)."""
        request.adopt()
        if len(request.waiting) > 1:
            self._plain.prefill([(request.table, request.waiting[:-1])])
            del request.waiting[:-1]
        first = len(request.table)
        self.runner.reserve(request.table, request.waiting)
        return first

    def _step(
        self, begun: list[tuple[Request, int]], claimed: list[tuple[Channel, PageTable]]
    ) -> list[tuple[int | None, int | None]]:
        """For each request its ids of text and audio, None where it needs none. `claimed`: what was
        marked and must be unmarked if this fails."""
        requests = [request for request, _ in begun]
        for request in requests:
            request.begin_step()
        needs = [request.channels for request in requests]
        rows_of = {c: [n for n, need in enumerate(needs) if c in need] for c in CHANNELS}
        bucket = self.graphs.bucket(len(requests))
        lines = [self._history.line(request) for request in requests]
        self._fill_trunk(begun, lines, bucket)
        self._buffers.send_trunk(self._place_tables(requests))
        self.graphs.run("trunk", bucket)
        # From here to the end of the trunk the host's work costs nothing.
        for channel, rows in rows_of.items():
            if rows:
                self._fill_tail(channel, rows, requests, lines, claimed)
        self._buffers.send_tails()
        for channel, rows in rows_of.items():
            if rows:
                self.graphs.run(channel, self.graphs.bucket(len(rows)))
        ids = self._buffers.download()
        chosen: dict[Channel, list[int | None]] = {c: [None] * len(requests) for c in CHANNELS}
        for index, (channel, rows) in enumerate(rows_of.items()):
            for row, number in zip(rows, ids[index, : len(rows)].tolist(), strict=True):
                chosen[channel][row] = number
        return list(zip(chosen["text"], chosen["audio"], strict=True))

    def _fill_trunk(self, begun: list[tuple[Request, int]], lines: list[int], bucket: int) -> None:
        fill, scratch = self._buffers.fill, self.runner.storage.scratch_slot
        tables = [request.table for request, _ in begun]
        fill("text", [request.last[0] for request, _ in begun], bucket)
        fill("audio", [request.last[1] for request, _ in begun], bucket)
        fill("position", [len(table) - 1 for table in tables], bucket)
        # A row that is through already (after a fork) runs once more for its output alone.
        slots = [
            request.table.slot(first) if request.waiting else scratch for request, first in begun
        ]
        fill("slot", slots, bucket)
        for index, channel in enumerate(CHANNELS):
            place = partial(self._history.place, channel)
            ids = [request.last[index] for request, _ in begun]
            fill("note", list(map(place, lines, ids)), bucket, index)

    def _fill_tail(
        self,
        channel: Channel,
        rows: list[int],
        requests: list[Request],
        lines: list[int],
        claimed: list[tuple[Channel, PageTable]],
    ) -> None:
        """`rows`: which of the requests go through that tail."""
        some = [requests[row] for row in rows]
        tables = [request.table for request in some]
        behind = [table for table in tables if len(table.missing(channel, 2)) > 1]
        if behind:
            self.runner.tail(channel, behind, but_last=True)
        index, bucket = CHANNELS.index(channel), self.graphs.bucket(len(rows))

        def fill(name: str, values: Sequence[float]) -> None:
            self._buffers.fill(name, values, bucket, index)

        positions = [len(table) - 1 for table in tables]
        slots = []
        for table, last in zip(tables, positions, strict=True):
            # Asked one by one: a table may share its last page with one that claimed it just now.
            if table.has_last(channel):
                slots.append(self.runner.storage.scratch_slot)
            else:
                table.mark(channel, [last])
                claimed.append((channel, table))
                slots.append(table.slot(last))
        fill("members", rows)
        fill("tail_position", positions)
        fill("tail_slot", slots)
        fill("history", [lines[row] for row in rows])
        fill("step", [request.step for request in some])
        fill("legal", [request.legal(channel) for request in some])
        if some != self._settled[channel]:
            self._settled[channel] = some
            settings = [request.sampling for request in some]
            # The generator's seed has 64 bits without a sign, the field one with.
            fill("seed", [s.seed - 2**64 if s.seed >= 2**63 else s.seed for s in settings])
            fill("top_k", [min(s.top_k, 2**31 - 1) for s in settings])
            fill("temperature", [s.temperature for s in settings])
            fill("top_p", [s.top_p for s in settings])
            fill("penalty", [s.repetition_penalty for s in settings])
            fill("greedy", [s.greedy for s in settings])

    def _place_tables(self, requests: list[Request]) -> range | None:
        """Writes the page tables that changed, or changed places; returns the rows they span."""
        changed = []
        for row, request in enumerate(requests):
            table = request.table
            if self._stamps[row] != table.stamp:
                self._stamps[row] = table.stamp
                self._buffers.host_tables[row, : len(table.pages)] = table.pages
                changed.append(row)
        return range(changed[0], changed[-1] + 1) if changed else None


def _accepted(request: Request, text: int | None, audio: int | None) -> Made:
    if (text is not None and text < 0) or (audio is not None and audio < 0):
        return NonFiniteLogits("logits are not finite numbers: the weights or the dtype are wrong")
    return request.accept(text, audio)
