"""Jobs that event loops submit to a thread: a priority queue by deadline.

The thread takes the job with the earliest deadline; of equal deadlines, the one submitted first.
Every waiting caller gets a result: an error of its job, and the end of the thread, are raised where
the job is awaited. Jobs are submitted on any thread and run on one. Knows nothing of codecs.
"""

import asyncio
import heapq
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

from mosslive.engine.health import Health
from mosslive.errors import MossliveError

Value = TypeVar("Value")
Result = asyncio.Future[Any]

NOW = float("-inf")  # due before anything that has a moment


@dataclass(frozen=True)
class Done(Generic[Value]):
    value: Value
    cost_s: float  # on the thread, without waiting


@dataclass(order=True)
class Job:
    due: float
    number: int
    work: Callable[[], Any] = field(compare=False)
    result: Result | None = field(compare=False)  # None: no caller waits
    settles: bool = field(default=True, compare=False)  # the result is what `work` returns
    kind: str = field(default="", compare=False)  # of work, for the health; empty: not counted


class ThreadEnded(MossliveError):
    """The thread that runs the jobs has ended by an error; no job runs any more."""


class JobQueue:
    def __init__(self, health: Health) -> None:
        """`health`: of the thread that runs the jobs; its name is the thread's name in errors."""
        self._name, self._health = health.name, health
        self._heap: list[Job] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._notified = False  # something changed since the last pause
        self.closing = False  # no further job is accepted
        self._ended = ""  # the error by which the thread ended

    # On any thread.

    def put(
        self,
        work: Callable[[], Any],
        due: float,
        result: Result | None,
        settles: bool = True,
        kind: str = "",
    ) -> None:
        """`kind`: of work, for the health of the thread; empty: not counted."""
        with self._changed:
            if self._ended and result is not None:
                raise ThreadEnded(self._ended)
            if self.closing and result is not None:
                raise MossliveError(f"{self._name} is closed")
            if self._ended:
                return  # no caller waits for it
            job = Job(due, next(self._numbers), work, result, settles, kind)
            heapq.heappush(self._heap, job)
            self._notified = True
            self._changed.notify()

    def notify(self) -> None:
        """Ends the current pause, or the next one."""
        with self._changed:
            self._notified = True
            self._changed.notify()

    def close(self) -> None:
        """Accepts no further job; the waiting jobs still run."""
        with self._changed:
            self.closing = True
            self._changed.notify()

    # On the thread that runs the jobs.

    def wait(self, busy: Callable[[], bool]) -> bool:
        """Waits until there is a job, or `busy` returns True: the thread has other work. False: the
        queue is closed and empty."""
        with self._changed:
            while not self._heap and not busy():
                if self.closing:
                    return False
                self._changed.wait()
        return True

    def pause(self, most_s: float) -> None:
        """Waits for a new job or for `notify`; returns at once if there was one since the last
        pause."""
        with self._changed:
            if not self._notified and not self.closing:
                self._changed.wait(most_s)
            self._notified = False

    @property
    def due(self) -> float:
        """The earliest deadline; inf: no job waits."""
        with self._changed:
            return self._heap[0].due if self._heap else float("inf")

    def take(self, before: float) -> Job | None:
        """The most urgent job, if it is due by then."""
        with self._changed:
            if self._heap and self._heap[0].due <= before:
                return heapq.heappop(self._heap)
        return None

    def run(self, job: Job, clock: Callable[[], float]) -> None:
        if job.result is not None and job.result.cancelled():
            return
        began = clock()
        try:
            value = job.work()
        except Exception as error:  # raised where the job is awaited
            if job.kind and not isinstance(error, MossliveError):  # a refusal is not a failure
                self._health.failed(job.kind, error)
            if job.result is not None:
                settle(job.result, error)
            return
        except BaseException:  # ends the thread; `give_up` then fails this job too
            with self._changed:
                heapq.heappush(self._heap, job)
            raise
        if job.kind:
            self._health.succeeded(job.kind)
        if job.result is not None and job.settles:
            settle(job.result, Done(value, clock() - began))

    def give_up(self, error: BaseException) -> MossliveError:
        """The thread ends: fails all waiting jobs and all later ones. Returns the error that they
        get."""
        with self._changed:
            self.closing = True
            self._ended = f"{self._name} has ended: {type(error).__name__}: {error}"
            jobs, self._heap = self._heap, []
        self._health.ended(error)
        ended = ThreadEnded(self._ended)
        for job in jobs:
            if job.result is not None:
                settle(job.result, ended)
        return ended


def settle(result: Result, outcome: Done[Any] | Exception) -> None:
    """Sets a result from another thread than that of its event loop."""

    def now() -> None:
        if result.done():
            return
        if isinstance(outcome, Exception):
            result.set_exception(outcome)
        else:
            result.set_result(outcome)

    try:
        result.get_loop().call_soon_threadsafe(now)
    except RuntimeError:  # the loop is closed, so no caller waits
        return
