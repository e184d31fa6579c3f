"""How long steps take: estimates by size, from recent measurements.

Sizes are grouped by powers of two, as captured graphs are. The estimate of a size is the median of
its latest measurements, so one pause of the process does not change it. A size without measurements
is estimated from the nearest measured size, scaled by the ratio of the configured guesses.

Measurements age. A size measured within `FRESH_S` has weight 1, which halves after each further
`HALF_S`. The rest of the weight goes to the next nearest size, and finally to the guess. So a
server that was slow once gets work again.

Has no clock: the caller passes durations and times. Not thread-safe, except `fresh`.
"""

import math
from collections import deque
from statistics import median_low

WINDOW = 15  # measurements kept per size; about a second of speech
FRESH_S = 2.0  # how long a measurement has full weight
HALF_S = 5.0  # after that, the time in which its weight halves
MIN_MEASUREMENTS = 3  # measurements before `is_measured` is true


class StepCosts:
    def __init__(self, guess_ms: tuple[float, float]) -> None:
        """`guess_ms`: milliseconds of a step, and per row in it."""
        self._guess_ms = guess_ms
        self._recent: dict[int, _Recent] = {}  # by size class

    def observe(self, size: int, seconds: float, now: float) -> None:
        self._recent.setdefault(_class_of(size), _Recent()).add(size, seconds, now)

    def seconds(self, size: int, now: float, least: int = 1) -> float:
        """Returns the estimate for a step of `size` requests or rows, and 0 for size 0. Sizes with
        fewer than `least` measurements are not used: a single one may be a pause."""
        if not size:
            return 0.0
        wanted = _class_of(size)
        estimate = self._guess(wanted)
        # The farthest size first, so that the nearest has the largest influence.
        for known in sorted(self._recent, key=lambda known: (-abs(known - wanted), -known)):
            recent = self._recent[known]
            if recent.count < least:
                continue
            projected = recent.median * self._guess(wanted) / self._guess(known)
            weight = recent.weight(now)
            estimate = weight * projected + (1 - weight) * estimate
        return estimate

    def is_measured(self, size: int, now: float) -> bool:
        """Whether this size has `MIN_MEASUREMENTS` or more, and the latest of them is fresh."""
        recent = self._recent.get(_class_of(size))
        return recent is not None and recent.count >= MIN_MEASUREMENTS and recent.weight(now) == 1.0

    def fresh(
        self, now: float, least: int = MIN_MEASUREMENTS, within_s: float = FRESH_S
    ) -> dict[int, float]:
        """Returns the measured seconds of sizes with `least` or more measurements of which the
        latest is at most `within_s` old. A class of sizes counts as its median size. May be called
        on any thread."""
        return {
            recent.median_size: recent.median
            for recent in list(self._recent.values())  # a copy: others may add a class
            if recent.count >= least and now - recent.latest <= within_s
        }

    def size_within(self, seconds: float, most: int, now: float) -> int:
        """Returns the largest size up to `most` whose estimate is at most `seconds`; 0 if there is
        none. Tries only `most` and powers of two: all sizes of a class have one estimate."""
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
        self._sizes: deque[int] = deque(maxlen=WINDOW)
        self.latest = -math.inf
        self.median = 0.0
        self.median_size = 0

    @property
    def count(self) -> int:
        return len(self._seconds)

    def add(self, size: int, seconds: float, now: float) -> None:
        # Conditions may have changed in a pause, so measurements from before it are dropped.
        if now - seconds - self.latest > FRESH_S:
            self._seconds.clear()
            self._sizes.clear()
        self._sizes.append(size)
        self._seconds.append(seconds)
        self.latest = now
        self.median = median_low(self._seconds)
        self.median_size = median_low(self._sizes)

    def weight(self, now: float) -> float:
        """Returns 1 while the latest measurement is fresh, then less, towards 0."""
        stale_s = now - self.latest - FRESH_S
        return 1.0 if stale_s <= 0 else math.pow(0.5, stale_s / HALF_S)


def _class_of(size: int) -> int:
    """Returns 0 for size 1, 1 for 2, 2 for 3 and 4, 3 for 5 to 8, and so on."""
    return (size - 1).bit_length()
