"""The time of a step by its size, as a curve through measured sizes.

Used to predict load, so the curve is never lower than what was measured: it does not fall with the
size, and beyond the largest measured size it grows in proportion to the size, although part of a
step's time is usually fixed. A slower measurement never makes any size faster. Immutable; knows
neither what a step does nor who measures it.
"""

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate


class StepTimes:
    def __init__(self, measured: Mapping[int, float]) -> None:
        """`measured`: seconds by size, one size or more."""
        if not measured:
            raise ValueError("no step was measured")
        self._sizes = sorted(measured)
        self._seconds = list(accumulate((measured[size] for size in self._sizes), max))

    def seconds(self, size: int) -> float:
        """0 for size 0; below the smallest measured size, its time."""
        sizes, seconds = self._sizes, self._seconds
        if not size:
            return 0.0
        if size >= sizes[-1]:
            return seconds[-1] * size / sizes[-1]
        above = bisect_left(sizes, size)
        if not above:
            return seconds[0]
        low, high = sizes[above - 1], sizes[above]
        part = (size - low) / (high - low)
        return seconds[above - 1] + part * (seconds[above] - seconds[above - 1])

    def scaled(self, factor: float) -> "StepTimes":
        pairs = zip(self._sizes, self._seconds, strict=True)
        return StepTimes({size: factor * seconds for size, seconds in pairs})
