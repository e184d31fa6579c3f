"""A stepper that records the start and duration of each decode step. Changes nothing else."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mosslive.cache import PagePool, PageTable
from mosslive.config import ModelConfig
from mosslive.engine.request import Request
from mosslive.engine.stepper import Stepper, StepResult
from mosslive.rows import Row


@dataclass(frozen=True)
class StepTime:
    requests: int
    began_s: float
    took_s: float


@dataclass
class TimedStepper:
    """Runs on the engine's thread. Read `steps` only while the engine is idle."""

    inner: Stepper
    steps: list[StepTime] = field(default_factory=list)

    @property
    def config(self) -> ModelConfig:
        return self.inner.config

    @property
    def pool(self) -> PagePool:
        return self.inner.pool

    @property
    def most_requests(self) -> int:
        return self.inner.most_requests

    @property
    def most_rows(self) -> int:
        return self.inner.most_rows

    def prefill(self, jobs: Sequence[tuple[PageTable, Sequence[Row]]]) -> None:
        self.inner.prefill(jobs)

    def decode(self, requests: Sequence[Request]) -> list[StepResult]:
        began = time.perf_counter()
        made = self.inner.decode(requests)
        self.steps.append(StepTime(len(requests), began, time.perf_counter() - began))
        return made

    def release(self, request: Request) -> None:
        self.inner.release(request)


def full_steps(steps: list[StepTime], streams: int) -> tuple[list[float], list[float]]:
    """Returns, for consecutive pairs of steps that both served every stream, the milliseconds from
    start to start and the milliseconds within the stepper."""
    pairs = [
        (one, other) for one, other in pairwise(steps) if one.requests == other.requests == streams
    ]
    spacing = [1e3 * (other.began_s - one.began_s) for one, other in pairs]
    return spacing, [1e3 * one.took_s for one, _ in pairs]
