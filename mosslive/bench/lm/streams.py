"""The streams of a `PrefixBatch` in an engine's pages, ready for the step that is verified and
timed.

All computation is the product's own: runner, page tables, and on a GPU the stepper with its
recorded graphs. Only a few prefixes are computed; the others are copied page by page, so that each
stream has its own memory, like a conversation.
"""

import torch
from torch import Tensor

from mosslive.bench.lm.prefix_batch import PrefixBatch
from mosslive.bench.timing import Times, summary, times_ms
from mosslive.bench.verified import NotVerified
from mosslive.cache import PagePool, PageTable
from mosslive.config import Sampling
from mosslive.engine.graph_runner import GraphRunner
from mosslive.engine.graph_stepper import GraphStepper
from mosslive.engine.request import Request
from mosslive.engine.runner import Runner
from mosslive.engine.stepper import PlainStepper
from mosslive.kernels.graph import GraphRecorder
from mosslive.model import Decoder
from mosslive.rows import CHANNELS, Channel, Row, RowIds

PAGE_SIZE = 16
_CHUNK_ROWS = 2048  # of a computed prefix
_STEADY_RUNS = 50


class Streams:
    """`capacity`: rows that will follow each prefix."""

    def __init__(self, decoder: Decoder, batch: PrefixBatch, capacity: int) -> None:
        self.decoder, self.batch = decoder, batch
        each = -(-(max(batch.lengths) + capacity) // PAGE_SIZE)
        pool = PagePool(each * len(batch.last_rows), PAGE_SIZE)
        self.runner = GraphRunner(decoder, pool, _CHUNK_ROWS)
        self.tables = [PageTable(self.runner.pool) for _ in batch.last_rows]
        # Before any page holds data, like in an engine, because recording writes into pages.
        self.stepper = self._make_stepper()

    @torch.inference_mode()
    def fill(self) -> None:
        """Fills the prefix of every stream, for both tails."""
        runner, count = self.runner, len(self.batch.prefixes)
        computed = self.tables[:count]
        for table, prefix in zip(computed, self.batch.prefixes, strict=True):
            runner.reserve(table, prefix)
            runner.trunk([(table, 0)])
            for channel in CHANNELS:
                runner.tail(channel, [table])
        sources: list[int] = []
        targets: list[int] = []
        for number, length in enumerate(self.batch.lengths[count:], count):
            table, given = self.tables[number], computed[number % count]
            runner.reserve(table, given.rows[:length])
            for channel in CHANNELS:
                table.mark(channel, table.missing(channel, length))
            targets += table.pages
            sources += given.pages[: len(table.pages)]
        self._copy(sources, targets)
        self.reset()  # the computed prefixes are longer

    @torch.inference_mode()
    def logits(self, channels: tuple[Channel, ...]) -> dict[Channel, Tensor]:
        """Returns logits of the last rows, one of each stream, float32 [B, V]. Resets the
        streams."""
        runner, tables = self.runner, self.tables
        lengths = [len(table) for table in tables]
        for table, row in zip(tables, self.batch.last_rows, strict=True):
            runner.reserve(table, [row])
        fresh = runner.trunk(list(zip(tables, lengths, strict=True)))
        found = {channel: runner.tail_logits(channel, tables, fresh) for channel in channels}
        self.reset()
        return found

    def reset(self) -> None:
        """Truncates every stream to its prefix."""
        for table, length in zip(self.tables, self.batch.lengths, strict=True):
            table.truncate(length)

    def requests(self, sampling: Sampling) -> list[Request]:
        """Returns requests for speech whose next step takes the last rows."""
        ids = RowIds.from_config(self.decoder.config, self.decoder.config.eos_token_id)
        longest = self.decoder.config.max_position_embeddings
        return [
            Request([row], sampling, ids, table, longest)
            for table, row in zip(self.tables, self.batch.last_rows, strict=True)
        ]

    def _make_stepper(self) -> PlainStepper | GraphStepper:
        """Returns the stepper that an engine would use. Records graphs for this number of streams
        only."""
        if self.decoder.device.type != "cuda":
            return PlainStepper(self.runner)
        stepper = GraphStepper(self.runner, len(self.tables))
        stepper.graphs.buckets = [len(self.tables)]
        stepper.graphs.record(GraphRecorder(self.decoder.device))
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
    """Times repetitions of the latest speech step on the device, from its inputs to its ids."""
    return summary(times_ms(lambda: _run_again(stepper, streams), "cuda", repeats))


def check_steady(stepper: GraphStepper, streams: int) -> None:
    """Raises `NotVerified` if repetitions of the latest step give different ids, for example
    through a race between kernels."""
    ids = stepper.graphs.buffers.ids
    first = ids.clone()
    for _ in range(_STEADY_RUNS):
        _run_again(stepper, streams)
        if not torch.equal(ids, first):
            raise NotVerified(f"a repeated recorded step of {streams} streams gives different ids")


def _run_again(stepper: GraphStepper, streams: int) -> None:
    bucket = stepper.graphs.bucket(streams)
    for name in ("trunk", "audio"):
        stepper.graphs.run(name, bucket)


class Conversation:
    """One page table to which rows are appended."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.table = PageTable(runner.pool)

    @classmethod
    def eager(cls, decoder: Decoder, capacity: int) -> "Conversation":
        """`capacity`: the largest number of rows."""
        return cls(Runner(decoder, _pool(capacity), _CHUNK_ROWS))

    @classmethod
    def recorded(cls, decoder: Decoder, capacity: int) -> "Conversation":
        """Records graphs for passes of up to `capacity` rows, as an engine on a GPU does for
        prompts."""
        runner = GraphRunner(decoder, _pool(capacity), capacity)
        if decoder.device.type == "cuda":
            runner.record(GraphRecorder(decoder.device))
        return cls(runner)

    @torch.inference_mode()
    def give(self, rows: list[Row], channels: tuple[Channel, ...]) -> dict[Channel, Tensor]:
        """Appends rows and returns the logits of the last, float32 [1, V] by channel."""
        first = len(self.table)
        self.runner.reserve(self.table, rows)
        fresh = self.runner.trunk([(self.table, first)])
        return {c: self.runner.tail_logits(c, [self.table], fresh) for c in channels}

    def reset(self) -> None:
        self.table.free()


def _pool(rows: int) -> PagePool:
    return PagePool(-(-rows // PAGE_SIZE), PAGE_SIZE)
