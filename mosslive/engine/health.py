"""Whether a component with a thread of its own (engine, codec) still works.

Rules:

- Failures are counted by kind of work, so that a kind that works does not hide one that fails.
- A single failure is an error of the caller that it hit. `MOST_FAILURES` of one kind in a row are a
  problem of the component. One success of that kind ends the problem.
- The end of the thread is a final problem.
- A component with a problem gets no new work. After `RETRY_S` without a failure it counts as
  working until the next failure, so that a recovery is noticed.
- If failures without a success span `FINAL_S`, the problem is final: the component cannot recover.
- A step that runs for `STUCK_S` is a problem while it runs, and a final one `FINAL_S` later. It is
  reported when it is seen twice, `_SEEN_S` apart: a process that was paused goes on at once.
- The loss of the device is reported once to `on_device_lost`: no later step can succeed.

Any thread may call it. Knows nothing of what the component does.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from mosslive.engine.device_errors import is_device_lost

MOST_FAILURES = 5
RETRY_S = 10.0
FINAL_S = 30.0
STUCK_S = 10.0  # hundreds of times as long as a step takes
_SEEN_S = 0.5
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


@dataclass
class _Running:
    kind: str
    since: float  # clock time
    most_s: float
    seen: float | None = None  # when it was first seen to run for too long


class Health:
    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.failures = 0  # since the start
        self._clock = clock
        self._lock = threading.Lock()
        self._failing: dict[str, _Failing] = {}  # by kind of work
        self._running: dict[str, _Running] = {}  # by place; a place runs one step at a time
        self._ended: str | None = None
        self.on_device_lost: Callable[[str], object] | None = None  # called on the thread that ends

    def began(self, place: str, kind: str, most_s: float | None = None) -> None:
        """A step runs in this place. `most_s`: how long it may take; default: `STUCK_S`."""
        limit_s = STUCK_S if most_s is None else most_s
        self._running[place] = _Running(kind, self._clock(), limit_s)

    def over(self, place: str) -> None:
        self._running.pop(place, None)

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
        if is_device_lost(error) and self.on_device_lost:
            self.on_device_lost(self._ended)

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
            return self._stuck(now)

    def _stuck(self, now: float) -> Problem | None:
        for one in list(self._running.values()):
            ran_s = now - one.since
            if ran_s < one.most_s:
                continue
            one.seen = now if one.seen is None else one.seen
            if now - one.seen >= _SEEN_S:
                message = f"{self.name} does not work: {one.kind} runs for {ran_s:.0f} s"
                return Problem(message, ran_s >= one.most_s + FINAL_S)
        return None

    def _describe(self, kind: str, failing: _Failing) -> str:
        return f"{kind} failed {failing.count} times in a row, the last with {failing.message}"
