"""The stepper for GPUs: decode steps run as CUDA graphs, prefill as in `PlainStepper`.

Turns requests into the input numbers of a recorded step, and its output into rows. It makes the
same rows as the plain stepper, up to rounding. The host's work per request and step is constant: it
never reads a history. Engine thread.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch

from mosslive.cache import OutOfPages, PageTable
from mosslive.engine.graph_runner import GraphRunner
from mosslive.engine.request import Request
from mosslive.engine.seen_ids import SeenIds
from mosslive.engine.step_buffers import StepBuffers
from mosslive.engine.step_graphs import StepGraphs
from mosslive.engine.stepper import PlainStepper, Stepper, StepResult
from mosslive.kernels import NonFiniteLogits
from mosslive.kernels.graph import GraphRecorder
from mosslive.rows import CHANNELS, Channel, Row

PRIORITY = -3  # of the CUDA stream; lower numbers come first (see `talk/codec_lanes.py`)


class GraphStepper:
    def __init__(self, runner: GraphRunner, most_requests: int = 256) -> None:
        """`most_requests`: in one step."""
        self.runner = runner
        self.config, self.pool = runner.decoder.config, runner.pool
        self.most_requests, self.most_rows = most_requests, runner.chunk
        self._plain = PlainStepper(runner)
        scratch, device = runner.storage.scratch_slot, runner.decoder.device
        padding_page = scratch // self.pool.page_size
        self._buffers = StepBuffers(
            most_requests, runner.pages_per_request, padding_page, scratch, device
        )
        sizes: dict[Channel, int] = {
            "text": self.config.vocab_size,
            "audio": self.config.audio_vocab_size,
        }
        self._seen_ids = SeenIds(most_requests, sizes, device)
        self.graphs = StepGraphs(runner.decoder, runner.storage, self._buffers, self._seen_ids)
        self._stamps = [-1] * most_requests  # of the page table that is in each row of the buffers
        # The requests whose sampling settings are in the fields of each tail.
        self._filled_sampling: dict[Channel, list[Request]] = {channel: [] for channel in CHANNELS}

    def record(self, progress: Callable[[int], None] = lambda done: None) -> None:
        """Records the graphs, which takes seconds; before that, steps run without them. `progress`
        is called with the number of graphs done. Does nothing without a GPU."""
        if self.runner.decoder.device.type == "cuda":
            with engine_stream(self):  # a graph keeps the priority of the stream it is recorded on
                recorder = GraphRecorder(self.runner.decoder.device, progress)
                self.runner.record(recorder)
                self.graphs.record(recorder)

    def prefill(self, jobs: Sequence[tuple[PageTable, Sequence[Row]]]) -> None:
        self._plain.prefill(jobs)

    @torch.inference_mode()
    def decode(self, requests: Sequence[Request]) -> list[StepResult]:
        results: dict[int, StepResult] = {}
        started: list[tuple[Request, int]] = []
        marked: list[tuple[Channel, PageTable]] = []
        try:
            for request in requests:
                try:
                    started.append((request, self._append_pending(request)))
                except OutOfPages as refusal:
                    results[id(request)] = refusal
            sampled = self._step(started, marked) if started else []
        except BaseException:
            for channel, table in marked:
                table.unmark(channel, [len(table) - 1])
            for request, first in started:
                request.table.truncate(first)
            raise
        for (request, _), (text, audio) in zip(started, sampled, strict=True):
            request.table.publish()
            request.pending.clear()
            results[id(request)] = _accept(request, text, audio)
        return [results[id(request)] for request in requests]

    def release(self, request: Request) -> None:
        self._seen_ids.release(request)
        for filled in self._filled_sampling.values():
            filled.clear()

    def _append_pending(self, request: Request) -> int:
        """Prefills all pending rows but the newest, and takes a page for that one. Returns how many
        rows are through the trunk: all, if none is pending (after a fork)."""
        request.adopt()
        if len(request.pending) > 1:
            self._plain.prefill([(request.table, request.pending[:-1])])
            del request.pending[:-1]
        first = len(request.table)
        self.runner.reserve(request.table, request.pending)
        return first

    def _step(
        self, started: list[tuple[Request, int]], marked: list[tuple[Channel, PageTable]]
    ) -> list[tuple[int | None, int | None]]:
        """Returns the sampled text and audio id of each request, None for a channel that it does
        not need. Adds to `marked` the tail rows to unmark if this fails."""
        requests = [request for request, _ in started]
        for request in requests:
            request.begin_step()
        needs = [request.channels for request in requests]
        rows_of = {c: [n for n, need in enumerate(needs) if c in need] for c in CHANNELS}
        bucket = self.graphs.bucket(len(requests))
        seen_slots = [self._seen_ids.slot(request) for request in requests]
        self._fill_trunk(started, seen_slots, bucket)
        self._buffers.send_trunk(self._write_tables(requests))
        self.graphs.run("trunk", bucket)
        # The host's work from here on overlaps with the trunk.
        for channel, rows in rows_of.items():
            if rows:
                self._fill_tail(channel, rows, requests, seen_slots, marked)
        self._buffers.send_tails()
        for channel, rows in rows_of.items():
            if rows:
                self.graphs.run(channel, self.graphs.bucket(len(rows)))
        ids = self._buffers.download()
        sampled: dict[Channel, list[int | None]] = {c: [None] * len(requests) for c in CHANNELS}
        for index, (channel, rows) in enumerate(rows_of.items()):
            for row, number in zip(rows, ids[index, : len(rows)].tolist(), strict=True):
                sampled[channel][row] = number
        return list(zip(sampled["text"], sampled["audio"], strict=True))

    def _fill_trunk(
        self, started: list[tuple[Request, int]], seen_slots: list[int], bucket: int
    ) -> None:
        fill, scratch = self._buffers.fill, self.runner.storage.scratch_slot
        tables = [request.table for request, _ in started]
        fill("text", [request.last[0] for request, _ in started], bucket)
        fill("audio", [request.last[1] for request, _ in started], bucket)
        fill("position", [len(table) - 1 for table in tables], bucket)
        # A row that is through the trunk already (after a fork) runs again for its output.
        slots = [
            request.table.slot(first) if request.pending else scratch for request, first in started
        ]
        fill("slot", slots, bucket)
        for index, channel in enumerate(CHANNELS):
            index_of = partial(self._seen_ids.index, channel)
            ids = [request.last[index] for request, _ in started]
            fill("seen_index", list(map(index_of, seen_slots, ids)), bucket, index)

    def _fill_tail(
        self,
        channel: Channel,
        rows: list[int],
        requests: list[Request],
        seen_slots: list[int],
        marked: list[tuple[Channel, PageTable]],
    ) -> None:
        """`rows`: indices of the requests that use this tail."""
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
            # Checked one by one: a table before it may share the last page and have marked it.
            if table.has_last(channel):
                slots.append(self.runner.storage.scratch_slot)
            else:
                table.mark(channel, [last])
                marked.append((channel, table))
                slots.append(table.slot(last))
        fill("members", rows)
        fill("tail_position", positions)
        fill("tail_slot", slots)
        fill("seen_slot", [seen_slots[row] for row in rows])
        fill("step", [request.row_number for request in some])
        fill("legal", [request.legal(channel) for request in some])
        if some != self._filled_sampling[channel]:
            self._filled_sampling[channel] = some
            settings = [request.sampling for request in some]
            # A seed is an unsigned 64-bit number, the field is signed.
            fill("seed", [s.seed - 2**64 if s.seed >= 2**63 else s.seed for s in settings])
            fill("top_k", [min(s.top_k, 2**31 - 1) for s in settings])
            fill("temperature", [s.temperature for s in settings])
            fill("top_p", [s.top_p for s in settings])
            fill("penalty", [s.repetition_penalty for s in settings])
            fill("greedy", [s.greedy for s in settings])

    def _write_tables(self, requests: list[Request]) -> range | None:
        """Writes page tables that changed or moved to another row; returns the range of rows."""
        changed = []
        for row, request in enumerate(requests):
            table = request.table
            if self._stamps[row] != table.stamp:
                self._stamps[row] = table.stamp
                self._buffers.host_tables[row, : len(table.pages)] = table.pages
                changed.append(row)
        return range(changed[0], changed[-1] + 1) if changed else None


def engine_stream(stepper: Stepper) -> AbstractContextManager[Any]:
    """On a GPU, a CUDA stream with the language model's priority: that of first sounds, before
    hearing and before the sound of replies that are ahead of their listeners."""
    if not isinstance(stepper, GraphStepper) or stepper.runner.decoder.device.type != "cuda":
        return nullcontext()
    device = stepper.runner.decoder.device
    torch.cuda.synchronize(device)  # what other streams have written is there
    own = torch.cuda.Stream(device, priority=PRIORITY)  # type: ignore[no-untyped-call]
    return torch.cuda.stream(own)


def _accept(request: Request, text: int | None, audio: int | None) -> StepResult:
    if (text is not None and text < 0) or (audio is not None and audio < 0):
        return NonFiniteLogits("logits are not finite numbers: the weights or the dtype are wrong")
    return request.accept(text, audio)
