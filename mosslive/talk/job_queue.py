"""Work that event loops ask of a thread: a line in the order in which it is due.

Of the jobs that wait the earliest due goes first, and of those due together the one that asked
first. Nobody waits in vain: what fails is told to whoever asked, and when the line ends, that is
told to all in it and to all who come. Knows nothing of codecs.
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
LiveReply = asyncio.Future[Any]

NOW = float("-inf")  # due before anything that has a time


@dataclass(frozen=True)
class Done(Generic[Value]):
    value: Value
    cost_s: float  # on the thread, waiting not counted


@dataclass(order=True)
class Job:
    due: float
    number: int
    work: Callable[[], Any] = field(compare=False)
    answer: LiveReply | None = field(compare=False)  # None: nobody waits
    settles: bool = field(default=True, compare=False)  # the answer is what `work` returns
    kind: str = field(default="", compare=False)  # of work, for the health; empty: not judged


class ThreadEnded(MossliveError):
    """The thread that does the jobs has ended by an error: nobody is served any more."""


class JobQueue:
    def __init__(self, health: Health) -> None:
        """`health`: of the thread that does the jobs; its name is that of the thread."""
        self._name, self._health = health.name, health
        self._line: list[Job] = []  # a heap
        self._numbers = count()
        self._news = threading.Condition()
        self._rung = False  # there was news since the last pause
        self.closing = False  # no more are taken
        self._ended = ""  # why, if it did by itself

    # On any thread.

    def put(
        self,
        work: Callable[[], Any],
        due: float,
        answer: LiveReply | None,
        settles: bool = True,
        kind: str = "",
    ) -> None:
        """`kind`: of work, for the health of the thread; empty: not judged."""
        with self._news:
            if self._ended and answer is not None:
                raise ThreadEnded(self._ended)
            if self.closing and answer is not None:
                raise MossliveError(f"{self._name} is closed")
            if self._ended:
                return  # what nobody waits for, nobody misses
            job = Job(due, next(self._numbers), work, answer, settles, kind)
            heapq.heappush(self._line, job)
            self._rung = True
            self._news.notify()

    def ring(self) -> None:
        """Ends the pause, or the next one."""
        with self._news:
            self._rung = True
            self._news.notify()

    def close(self) -> None:
        """No more are taken; those that wait are still done."""
        with self._news:
            self.closing = True
            self._news.notify()

    # On the thread that does them.

    def wait(self, busy: Callable[[], bool]) -> bool:
        """Until there is a job, or something else keeps the thread `busy`. False: it is closed, and
        all is done."""
        with self._news:
            while not self._line and not busy():
                if self.closing:
                    return False
                self._news.wait()
        return True

    def pause(self, most_s: float) -> None:
        """Until a job comes, or the bell rings; it may have since the last pause."""
        with self._news:
            if not self._rung and not self.closing:
                self._news.wait(most_s)
            self._rung = False

    @property
    def due(self) -> float:
        """When the most urgent of them is."""
        with self._news:
            return self._line[0].due if self._line else float("inf")

    def take(self, before: float) -> Job | None:
        """The most urgent job, if it is due by then."""
        with self._news:
            if self._line and self._line[0].due <= before:
                return heapq.heappop(self._line)
        return None

    def do(self, job: Job, clock: Callable[[], float]) -> None:
        if job.answer is not None and job.answer.cancelled():
            return
        began = clock()
        try:
            value = job.work()
        except Exception as error:  # answered: it belongs to whoever asked
            if job.kind and not isinstance(error, MossliveError):  # a refusal is no failure
                self._health.failed(job.kind, error)
            if job.answer is not None:
                settle(job.answer, error)
            return
        except BaseException:  # the end of the thread, which `give_up` tells
            with self._news:
                heapq.heappush(self._line, job)
            raise
        if job.kind:
            self._health.succeeded(job.kind)
        if job.answer is not None and job.settles:
            settle(job.answer, Done(value, clock() - began))

    def give_up(self, error: BaseException) -> MossliveError:
        """The thread ends: all who wait are told, and all who come. Returns what they are told."""
        with self._news:
            self.closing = True
            self._ended = f"{self._name} has ended: {type(error).__name__}: {error}"
            line, self._line = self._line, []
        self._health.ended(error)
        told = ThreadEnded(self._ended)
        for job in line:
            if job.answer is not None:
                settle(job.answer, told)
        return told


def settle(answer: LiveReply, outcome: Done[Any] | Exception) -> None:
    """From another thread than that of the loop where somebody waits."""

    def now() -> None:
        if answer.done():
            return
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    try:
        answer.get_loop().call_soon_threadsafe(now)
    except RuntimeError:  # that loop is closed, so nobody waits there any more
        return
