"""What runs the model for an engine: rows in, one new row per request out; and its plain form.

The border between policy and arithmetic. A stepper decides nothing: whom to run, how many rows and
in which order is the caller's business; how they are computed (eagerly, or by captured graphs) is
the stepper's. One thread calls it.

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

# "lazy": a tail runs only when its logits are wanted, and first catches up from the trunk's stored
# output. "both": both tails on every step. The rows are the same; lazy does less.
Tails = Literal["lazy", "both"]

Made = Row | MossliveError  # what a request gets from a step


class Stepper(Protocol):
    """A call that raises leaves tables and requests as they were, or as if fewer rows had been
    given: it may be made again, for all or for some of them."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def pool(self) -> PagePool: ...

    @property
    def most_requests(self) -> int:
        """One `decode` takes at most so many."""
        ...

    @property
    def most_rows(self) -> int:
        """One `prefill` is given at most so many rows, all jobs together."""
        ...

    def prefill(self, jobs: Sequence[tuple[PageTable, Sequence[Row]]]) -> None:
        """Appends rows to tables and runs them through the trunk (a tail may be brought up to date
        as well). Tables differ. Raises `OutOfPages`."""
        ...

    def decode(self, requests: Sequence[Request]) -> list[Made]:
        """One new row for each: runs `waiting` through the trunk, brings the tails that the coming
        mode needs up to date, chooses ids and has them accepted. A request that finds no page, or
        whose logits are not finite, gets that error, and the others their rows."""
        ...

    def release(self, request: Request) -> None:
        """This reply gets no more rows: forget what is kept for it. Its table is the caller's."""
        ...


def check_tails(tails: str) -> None:
    if tails not in get_args(Tails):
        raise refuse("tails", tails, " or ".join(get_args(Tails)))


class PlainStepper:
    """Part by part as PyTorch gives it, on any device. The definition of a step."""

    most_requests = 1024

    def __init__(self, runner: Runner, tails: Tails = "lazy") -> None:
        check_tails(tails)
        self.runner = runner
        self.tails = tails
        self.config = runner.decoder.config
        self.pool = runner.pool
        self.most_rows = runner.chunk

    @torch.inference_mode()  # no gradients, and a leaner path through PyTorch
    def prefill(self, jobs: Sequence[tuple[PageTable, Sequence[Row]]]) -> None:
        begun: list[tuple[PageTable, int]] = []
        try:
            for table, rows in jobs:
                begun.append((table, len(table)))
                self.runner.reserve(table, rows)
            self.runner.trunk(begun)
        except BaseException:
            _take_back(begun)
            raise

    @torch.inference_mode()
    def decode(self, requests: Sequence[Request]) -> list[Made]:
        made: dict[int, Made] = {}
        begun: list[tuple[Request, int]] = []
        try:
            for request in requests:
                try:
                    begun.append((request, self._enter(request)))
                except OutOfPages as refusal:
                    made[id(request)] = refusal
            fresh = self.runner.trunk([(request.table, first) for request, first in begun])
        except BaseException:
            _take_back([(request.table, first) for request, first in begun])
            raise
        for request, _ in begun:
            request.waiting.clear()
            request.begin_step()
        wanted = {c: [r for r, _ in begun if c in r.channels] for c in CHANNELS}
        logits = {
            channel: dict(
                zip(
                    map(id, some),
                    self.runner.tail_logits(channel, [request.table for request in some], fresh),
                    strict=True,
                )
            )
            for channel, some in wanted.items()
            if some
        }
        if self.tails == "both":
            for channel in CHANNELS:
                self.runner.tail(channel, [request.table for request, _ in begun])
        for request, _ in begun:
            own = {channel: logits[channel][id(request)] for channel in request.channels}
            try:
                made[id(request)] = sample_row(request, own)
            except Exception as error:  # its own fault alone: the others have their rows
                made[id(request)] = step_failed(error)
        return [made[id(request)] for request in requests]

    def release(self, request: Request) -> None:
        request.seen.clear()

    def _enter(self, request: Request) -> int:
        """Pages for the rows that wait; returns from which row on the trunk has to run."""
        request.adopt()
        first = len(request.table)
        self.runner.reserve(request.table, request.waiting)
        return first


def _take_back(begun: list[tuple[PageTable, int]]) -> None:
    for table, first in begun:
        table.truncate(first)
