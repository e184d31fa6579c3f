"""The interface that runs the model for an engine, and its plain implementation.

A stepper takes rows and returns one new row per request. The caller decides which requests run, how
many rows and in which order. The stepper decides how they are computed: eagerly or by captured
graphs. One thread calls it.

Invariant: outside a call every row of a table has been through the trunk.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, get_args

import torch

from mosslive.cache import OutOfPages, PagePool, PageTable
from mosslive.config import ModelConfig, refuse
from mosslive.engine.errors import step_failed
from mosslive.engine.request import Request
from mosslive.engine.runner import Runner
from mosslive.engine.sample import sample_row
from mosslive.errors import MossliveError
from mosslive.rows import CHANNELS, Row

# "lazy": a tail runs only when its logits are needed, and first processes the rows it has missed,
# from the trunk's stored output. "both": both tails run in every step. The rows are the same.
Tails = Literal["lazy", "both"]

StepResult = Row | MossliveError  # of one request in a decode step


class Stepper(Protocol):
    """A call that raises leaves tables and requests unchanged, or as after a call with fewer rows.
    It can be repeated, for all or for some of them."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def pool(self) -> PagePool: ...

    @property
    def most_requests(self) -> int:
        """The most requests of one `decode`."""
        ...

    @property
    def most_rows(self) -> int:
        """The most rows of one `prefill`, over all jobs."""
        ...

    def prefill(self, jobs: Sequence[tuple[PageTable, Sequence[Row]]]) -> None:
        """Appends rows to tables and runs them through the trunk, optionally also through a tail.
        Each table occurs once. Raises `OutOfPages`."""
        ...

    def decode(self, requests: Sequence[Request]) -> list[StepResult]:
        """Makes one new row per request: runs `pending` through the trunk, runs the tails that the
        request's mode needs, samples ids and passes them to `accept`. A request without a free
        page or with non-finite logits gets that error; the others get their rows."""
        ...

    def release(self, request: Request) -> None:
        """Drops what is kept for a request that gets no more rows. The caller frees its table."""
        ...


def check_tails(tails: str) -> None:
    if tails not in get_args(Tails):
        raise refuse("tails", tails, " or ".join(get_args(Tails)))


class PlainStepper:
    """The definition of a step, in eager PyTorch, on any device."""

    most_requests = 1024

    def __init__(self, runner: Runner, tails: Tails = "lazy") -> None:
        check_tails(tails)
        self.runner = runner
        self.tails = tails
        self.config = runner.decoder.config
        self.pool = runner.pool
        self.most_rows = runner.chunk

    @torch.inference_mode()  # no gradients, and less overhead in PyTorch
    def prefill(self, jobs: Sequence[tuple[PageTable, Sequence[Row]]]) -> None:
        started: list[tuple[PageTable, int]] = []
        try:
            for table, rows in jobs:
                started.append((table, len(table)))
                self.runner.reserve(table, rows)
            self.runner.trunk(started)
        except BaseException:
            _roll_back(started)
            raise

    @torch.inference_mode()
    def decode(self, requests: Sequence[Request]) -> list[StepResult]:
        results: dict[int, StepResult] = {}
        started: list[tuple[Request, int]] = []
        try:
            for request in requests:
                try:
                    started.append((request, self._append_pending(request)))
                except OutOfPages as refusal:
                    results[id(request)] = refusal
            trunk_pass = self.runner.trunk([(request.table, first) for request, first in started])
        except BaseException:
            _roll_back([(request.table, first) for request, first in started])
            raise
        for request, _ in started:
            request.pending.clear()
            request.begin_step()
        wanted = {c: [r for r, _ in started if c in r.channels] for c in CHANNELS}
        logits = {
            channel: dict(
                zip(
                    map(id, some),
                    self.runner.tail_logits(
                        channel, [request.table for request in some], trunk_pass
                    ),
                    strict=True,
                )
            )
            for channel, some in wanted.items()
            if some
        }
        if self.tails == "both":
            for channel in CHANNELS:
                self.runner.tail(channel, [request.table for request, _ in started])
        for request, _ in started:
            own = {channel: logits[channel][id(request)] for channel in request.channels}
            try:
                results[id(request)] = sample_row(request, own)
            except Exception as error:  # only this request fails
                results[id(request)] = step_failed(error)
        return [results[id(request)] for request in requests]

    def release(self, request: Request) -> None:
        request.seen.clear()

    def _append_pending(self, request: Request) -> int:
        """Takes pages for the pending rows; returns the first row that the trunk must run."""
        request.adopt()
        first = len(request.table)
        self.runner.reserve(request.table, request.pending)
        return first


def _roll_back(started: list[tuple[PageTable, int]]) -> None:
    for table, first in started:
        table.truncate(first)
