"""The streams of a forest in an engine's pages, ready for the step that is judged and timed.

Everything that computes is the product's own: runner, page tables, and on a GPU the stepper with
its recorded graphs. Only the beginnings are filled in by copying pages: each stream has memory of
its own, as conversations have, but few are computed.
"""

import torch
from torch import Tensor

from mosslive.bench.lm.prefix_batch import Forest
from mosslive.bench.timing import Times, summary, times_ms
from mosslive.bench.verified import NotVerified
from mosslive.cache import PagePool, PageTable
from mosslive.config import Sampling
from mosslive.engine.graph_runner import GraphRunner
from mosslive.engine.graph_stepper import GraphStepper
from mosslive.engine.recording import Recorder
from mosslive.engine.request import Request
from mosslive.engine.runner import Runner
from mosslive.engine.stepper import PlainStepper
from mosslive.model import Decoder
from mosslive.rows import CHANNELS, Channel, Row, RowIds

PAGE_SIZE = 16
_CHUNK_ROWS = 2048  # of a beginning that is computed
_STEADY_RUNS = 50


class Streams:
    """`room`: rows that will follow each beginning."""

    def __init__(self, decoder: Decoder, forest: Forest, room: int) -> None:
        self.decoder, self.forest = decoder, forest
        each = -(-(max(forest.lengths) + room) // PAGE_SIZE)
        pool = PagePool(each * len(forest.leaves), PAGE_SIZE)
        self.runner = GraphRunner(decoder, pool, _CHUNK_ROWS)
        self.tables = [PageTable(self.runner.pool) for _ in forest.leaves]
        # As an engine does, before any page holds something: recording writes into pages.
        self.stepper = self._make_stepper()

    @torch.inference_mode()
    def fill(self) -> None:
        """Every stream gets its beginning, both tails included."""
        runner, count = self.runner, len(self.forest.trunks)
        computed = self.tables[:count]
        for table, trunk in zip(computed, self.forest.trunks, strict=True):
            runner.reserve(table, trunk)
            runner.trunk([(table, 0)])
            for channel in CHANNELS:
                runner.tail(channel, [table])
        sources: list[int] = []
        targets: list[int] = []
        for number, length in enumerate(self.forest.lengths[count:], count):
            table, given = self.tables[number], computed[number % count]
            runner.reserve(table, given.rows[:length])
            for channel in CHANNELS:
                table.mark(channel, table.missing(channel, length))
            targets += table.pages
            sources += given.pages[: len(table.pages)]
        self._copy(sources, targets)
        self.forget()  # the computed ones are longer

    @torch.inference_mode()
    def logits(self, channels: tuple[Channel, ...]) -> dict[Channel, Tensor]:
        """Of the forest's leaves, one row of each stream, float32 [B, V]. They leave no trace."""
        runner, tables = self.runner, self.tables
        lengths = [len(table) for table in tables]
        for table, leaf in zip(tables, self.forest.leaves, strict=True):
            runner.reserve(table, [leaf])
        fresh = runner.trunk(list(zip(tables, lengths, strict=True)))
        found = {channel: runner.tail_logits(channel, tables, fresh) for channel in channels}
        self.forget()
        return found

    def forget(self) -> None:
        """Back to the beginnings."""
        for table, length in zip(self.tables, self.forest.lengths, strict=True):
            table.truncate(length)

    def requests(self, sampling: Sampling) -> list[Request]:
        """Speech replies whose next step takes the leaves."""
        ids = RowIds.from_config(self.decoder.config, self.decoder.config.eos_token_id)
        longest = self.decoder.config.max_position_embeddings
        return [
            Request([leaf], sampling, ids, table, longest)
            for table, leaf in zip(self.tables, self.forest.leaves, strict=True)
        ]

    def _make_stepper(self) -> PlainStepper | GraphStepper:
        """What an engine would run them by. The graphs recorded are those of this many streams."""
        if self.decoder.device.type != "cuda":
            return PlainStepper(self.runner)
        stepper = GraphStepper(self.runner, len(self.tables))
        stepper.graphs.buckets = [len(self.tables)]
        stepper.graphs.record(Recorder(self.decoder.device))
        return stepper

    def _copy(self, sources: list[int], targets: list[int]) -> None:
        if not targets:
            return
        chosen, places = (torch.tensor(p, device=self.decoder.device) for p in (sources, targets))
        storage = self.runner.storage
        layers = (*storage.trunk, *(pages for tail in storage.tails.values() for pages in tail))
        for half in (storage.hidden, *(half for pages in layers for half in pages)):
            half.index_copy_(0, places, half.index_select(0, chosen))


def device_part(stepper: GraphStepper, streams: int, repeats: int) -> Times:
    """The latest step of speech, once more and again: from its numbers on the device to its ids."""
    return summary(times_ms(lambda: _run_again(stepper, streams), "cuda", repeats))


def check_steady(stepper: GraphStepper, streams: int) -> None:
    """The latest step gives the same ids however often it runs; a race between kernels would show.
    Raises `NotVerified`."""
    ids = stepper.graphs.buffers.ids
    first = ids.clone()
    for _ in range(_STEADY_RUNS):
        _run_again(stepper, streams)
        if not torch.equal(ids, first):
            raise NotVerified(f"a recorded step of {streams} streams, repeated, gives other ids")


def _run_again(stepper: GraphStepper, streams: int) -> None:
    bucket = stepper.graphs.bucket(streams)
    for name in ("trunk", "audio"):
        stepper.graphs.run(name, bucket)


class Conversation:
    """One table that rows are given to as they come."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.table = PageTable(runner.pool)

    @classmethod
    def eager(cls, decoder: Decoder, room: int) -> "Conversation":
        """`room`: rows at most."""
        return cls(Runner(decoder, _pool(room), _CHUNK_ROWS))

    @classmethod
    def recorded(cls, decoder: Decoder, room: int) -> "Conversation":
        """As an engine on a GPU runs prompts: passes of that many rows, or fewer, as graphs."""
        runner = GraphRunner(decoder, _pool(room), room)
        if decoder.device.type == "cuda":
            runner.record(Recorder(decoder.device))
        return cls(runner)

    @torch.inference_mode()
    def give(self, rows: list[Row], channels: tuple[Channel, ...]) -> dict[Channel, Tensor]:
        """Logits of the last row, float32 [1, V] by channel."""
        first = len(self.table)
        self.runner.reserve(self.table, rows)
        fresh = self.runner.trunk([(self.table, first)])
        return {c: self.runner.tail_logits(c, [self.table], fresh) for c in channels}

    def forget(self) -> None:
        self.table.free()


def _pool(rows: int) -> PagePool:
    return PagePool(-(-rows // PAGE_SIZE), PAGE_SIZE)
