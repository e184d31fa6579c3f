"""Whether a component with a thread of its own (engine, codec) still works.

Rules:

- Failures are counted by kind of work, so that a kind that works does not hide one that fails.
- A single failure is an error of the caller that it hit. `MOST_FAILURES` of one kind in a row are a
  problem of the component. One success of that kind ends the problem.
- The end of the thread is a final problem.
- A component with a problem gets no new work. After `RETRY_S` without a failure it counts as
  working until the next failure, so that a recovery is noticed.
- If failures without a success span `FINAL_S`, the problem is final: the component cannot recover.

Any thread may call it. Knows nothing of what the component does.
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
    final: bool  # only a restart of the process can fix it


@dataclass
class _Failing:
    first: float  # clock time
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
        if kind not in self._failing:  # the common case, without the lock
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
            _log.error("%s does not work: %s", self.name, self._describe(kind, failing))

    def ended(self, error: BaseException) -> None:
        """Records that the component's thread has ended. Idempotent: the first error is kept."""
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
                    message = f"{self.name} does not work: {self._describe(kind, failing)}"
                    return Problem(message, final)
        return None

    def _describe(self, kind: str, failing: _Failing) -> str:
        return f"{kind} failed {failing.count} times in a row, the last with {failing.message}"
