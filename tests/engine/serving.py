"""Helpers for tests of the served engine: engines stepped by the test, steppers that interfere or
fail."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from mosslive import Conversation, Engine, EngineSettings, LanguageModel, Sampling
from mosslive.cache import PageTable
from mosslive.engine import PlainStepper, ReplyStream
from mosslive.engine.request import Request
from mosslive.engine.stepper import StepResult
from mosslive.rows import Row
from tests.engine.models import Answer, all_free, answer, fresh, prompt_rows

_WAIT_S = 50.0  # long, because a shared machine can be slow
ROOMY = EngineSettings(headroom_rows=0, ahead_rows=10_000)


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Watched(PlainStepper):
    """A plain stepper that calls `before` and `after` around every call of the model, with the
    tables of the batch."""

    before: Callable[[list[PageTable]], None] = staticmethod(lambda tables: None)
    after: Callable[[list[PageTable]], None] = staticmethod(lambda tables: None)

    def prefill(self, jobs: Sequence[tuple[PageTable, Sequence[Row]]]) -> None:
        tables = [table for table, _ in jobs]
        self.before(tables)
        super().prefill(jobs)
        self.after(tables)

    def decode(self, requests: Sequence[Request]) -> list[StepResult]:
        tables = [request.table for request in requests]
        self.before(tables)
        made = super().decode(requests)
        self.after(tables)
        return made


class Served:
    """An engine without a thread on weights of `lm`, in a pool of its own filled with NaN."""

    def __init__(self, lm: LanguageModel, settings: EngineSettings = ROOMY, **of_pool: Any) -> None:
        self.lm = fresh(lm, **of_pool)
        self.clock = Clock()
        self.stepper = Watched(self.lm.runner)
        self.engine = Engine(self.stepper, lm.tokenizer, settings, clock=self.clock, threaded=False)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.engine.loop.step()

    def idle(self) -> None:
        """Steps until nothing is left to do."""
        for _ in range(10_000):
            if not self.engine.loop.step():
                return
        raise AssertionError("never idle")

    def finish(self, reply: ReplyStream) -> Answer:
        """Steps until a reply ends."""
        for _ in range(10_000):
            if reply.stop:
                return Answer(reply.rows, reply.stop)  # type: ignore[arg-type]
            self.step()
        raise AssertionError("the reply never ends")

    def all_free(self) -> bool:
        """No page is taken or reserved."""
        return all_free(self.lm) and self.engine.stats().free_pages == self.lm.pool.total


def opened(served: Served, name: str) -> Conversation:
    conversation = served.engine.open()
    conversation.append(prompt_rows(served.lm, name))
    return conversation


Oracle = Callable[[list[Row], Sampling], Answer]


def oracle_of(switching: LanguageModel) -> Oracle:
    """Returns (history, sampling) → the answer of the plain loop; computed once each."""
    known: dict[Any, Answer] = {}

    def plain(history: list[Row], sampling: Sampling) -> Answer:
        key = tuple(history), sampling
        if key not in known:
            known[key] = answer(fresh(switching), history, sampling)
        return known[key]

    return plain


async def until(done: Callable[[], bool], step: Callable[[], Any] = lambda: None) -> None:
    """Lets other tasks and the engine run until a condition holds. After a while it sleeps between
    checks, because an engine with a thread of its own needs the processor."""
    begun, checks = time.monotonic(), 0
    while not done():
        if time.monotonic() - begun > _WAIT_S:
            raise AssertionError(f"the condition did not hold within {_WAIT_S:g} s")
        step()
        checks += 1
        await asyncio.sleep(0 if checks < 1000 else 0.001)


async def read(reply: ReplyStream) -> list[Row]:
    return [row async for row in reply]
