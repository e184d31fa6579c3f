"""How long steps take: estimates by size, from recent measurements.

Sizes are grouped by powers of two, as captured graphs are. The estimate of a size is the median of
its latest measurements, so one pause of the process does not change it. A size that was not
measured is estimated from the nearest one that was, in the proportion of a first guess.

Measurements age. The estimate believes a size that was measured within `FRESH_S` fully, and half as
much after each further `HALF_S`; the rest of the estimate comes from the next nearest size, and at
last from the guess. So a server that was slow once is tried again.

Knows no clock: seconds and moments come in. Not thread-safe.
"""

import math
from collections import deque
from statistics import median_low

WINDOW = 15  # measurements a size keeps; about a second of speech
FRESH_S = 2.0  # how long a measurement is believed fully
HALF_S = 5.0  # after that, the time in which belief halves
LEAST = 3  # measurements that are more than chance


class StepCosts:
    def __init__(self, guess_ms: tuple[float, float]) -> None:
        """`guess_ms`: milliseconds of a step, and per row in it."""
        self._guess_ms = guess_ms
        self._recent: dict[int, _Recent] = {}  # by size class

    def observe(self, size: int, seconds: float, now: float) -> None:
        self._recent.setdefault(_class_of(size), _Recent()).add(seconds, now)

    def seconds(self, size: int, now: float) -> float:
        """Returns the estimate for a step of `size` requests or rows, and 0 for size 0."""
        if not size:
            return 0.0
        wanted = _class_of(size)
        estimate = self._guess(wanted)
        # The farthest first, so that the nearest has the last word.
        for known in sorted(self._recent, key=lambda known: (-abs(known - wanted), -known)):
            recent = self._recent[known]
            projected = recent.typical * self._guess(wanted) / self._guess(known)
            belief = recent.belief(now)
            estimate = belief * projected + (1 - belief) * estimate
        return estimate

    def is_measured(self, size: int, now: float) -> bool:
        """Whether the estimate for this size rests on several measurements that are still fresh."""
        recent = self._recent.get(_class_of(size))
        return recent is not None and recent.count >= LEAST and recent.belief(now) == 1.0

    def size_within(self, seconds: float, most: int, now: float) -> int:
        """The largest size, at most `most`, whose estimate is not above `seconds`; 0 if none. Tries
        whole classes and `most` itself only: estimates do not distinguish sizes between them."""
        size = most
        while size and self.seconds(size, now) > seconds:
            size = 2 ** (_class_of(size) - 1) if size > 1 else 0
        return size

    def _guess(self, size_class: int) -> float:
        once, each = self._guess_ms
        return (once + each * (1 << size_class)) / 1e3


class _Recent:
    """The latest measurements of one size."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=WINDOW)
        self._latest = -math.inf
        self.typical = 0.0

    @property
    def count(self) -> int:
        return len(self._seconds)

    def add(self, seconds: float, now: float) -> None:
        # After a pause the conditions are others: measurements from before it do not count.
        if now - seconds - self._latest > FRESH_S:
            self._seconds.clear()
        self._seconds.append(seconds)
        self._latest = now
        self.typical = median_low(self._seconds)

    def belief(self, now: float) -> float:
        """1 while the latest measurement is fresh, then less and less, towards 0."""
        stale_s = now - self._latest - FRESH_S
        return 1.0 if stale_s <= 0 else math.pow(0.5, stale_s / HALF_S)


def _class_of(size: int) -> int:
    """0 for 1, 1 for 2, 2 for 3 and 4, 3 for 5 to 8, and so on."""
    return (size - 1).bit_length()
