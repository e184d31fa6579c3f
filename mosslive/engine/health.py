"""Whether a part of the server that has a thread of its own still works.

Failures are counted by kind of work, so that a kind that works does not hide one that does not. One
failure concerns the caller it hit. `MOST_FAILURES` of one kind in a row are a problem of the part;
one success of that kind ends it. The end of the thread is a problem for good.

A part with a problem gets no new work, so after `RETRY_S` without a failure it counts as working
until the next failure: else nobody would notice that it works again. If failures without a success
span `FINAL_S`, the part is taken to be unable to recover by itself.

Called from any thread. Knows nothing of what the part does.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

MOST_FAILURES = 5
RETRY_S = 10.0
FINAL_S = 30.0
_log = logging.getLogger("mosslive.health")


class Problem(NamedTuple):
    message: str
    final: bool  # only a restart of the process helps


@dataclass
class _Failing:
    first: float  # moments
    latest: float
    message: str
    count: int = 1


class Health:
    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.failures = 0  # since the start
        self._clock = clock
        self._lock = threading.Lock()
        self._failing: dict[str, _Failing] = {}  # by kind of work
        self._ended: str | None = None

    def succeeded(self, kind: str) -> None:
        if kind not in self._failing:  # as nearly always; without the lock
            return
        with self._lock:
            failing = self._failing.pop(kind, None)
        if failing and failing.count >= MOST_FAILURES:
            _log.warning("%s works again: %s", self.name, kind)

    def failed(self, kind: str, error: BaseException) -> None:
        now, message = self._clock(), f"{type(error).__name__}: {error}"
        with self._lock:
            self.failures += 1
            failing = self._failing.get(kind)
            if failing is None:
                failing = self._failing[kind] = _Failing(now, now, message)
            else:
                failing.latest, failing.message = now, message
                failing.count += 1
            count = failing.count
        if count == MOST_FAILURES:
            _log.error("%s does not work: %s", self.name, self._says(kind, failing))

    def ended(self, error: BaseException) -> None:
        """The part's thread has ended. Idempotent: the first error counts."""
        with self._lock:
            if self._ended is not None:
                return
            self.failures += 1
            self._ended = f"{self.name} has ended: {type(error).__name__}: {error}"
        _log.error("%s; restart the process", self._ended)

    def problem(self) -> Problem | None:
        with self._lock:
            if self._ended is not None:
                return Problem(self._ended, True)
            now = self._clock()
            for kind, failing in self._failing.items():
                if failing.count < MOST_FAILURES:
                    continue
                final = failing.latest - failing.first >= FINAL_S
                if final or now - failing.latest < RETRY_S:
                    message = f"{self.name} does not work: {self._says(kind, failing)}"
                    return Problem(message, final)
        return None

    def _says(self, kind: str, failing: _Failing) -> str:
        return f"{kind} failed {failing.count} times in a row, the last with {failing.message}"
