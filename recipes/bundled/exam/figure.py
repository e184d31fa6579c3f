"""One figure of the examination: a value, its interval, its number of questions, and its goal.

Shares have Wilson intervals, means normal ones, and ratios of sums (word error rates) bootstrap
ones over whole replies; all 95 %. Does not know what the numbers measure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

LEAST_COUNT = 200  # a figure of fewer questions is marked
_Z = 1.959964  # of 95 %
_DRAWS, _SEED = 2000, 0

Unit = Literal["%", "s", "", "count"]


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: Unit
    count: int  # number of questions
    low: float | None = None
    high: float | None = None
    goal: str = ""  # ">= 90", "<= 6": in the figure's unit
    part: str = ""
    note: str = ""

    @property
    def met(self) -> bool | None:
        if not self.goal:
            return None
        relation, bound = self.goal.split()
        return self.value >= float(bound) if relation == ">=" else self.value <= float(bound)

    @property
    def few(self) -> bool:
        return self.count < LEAST_COUNT

    @property
    def shown(self) -> str:
        """Formats the value: '93.1 %'."""
        if self.unit == "count":
            return f"{self.value:.0f}"
        digits = 1 if self.unit == "%" else 3 if self.unit == "s" else 2
        return f"{self.value:.{digits}f} {self.unit}".strip()

    @property
    def interval(self) -> str:
        if self.low is None or self.high is None:
            return ""
        digits = 1 if self.unit == "%" else 3 if self.unit == "s" else 2
        return f"{self.low:.{digits}f}-{self.high:.{digits}f}"

    @property
    def sample_size(self) -> str:
        return f"{self.count}{f' (fewer than {LEAST_COUNT})' if self.few else ''}"

    @property
    def verdict(self) -> str:
        if self.met is None:
            return ""
        return f"{self.goal}: {'met' if self.met else 'missed'}"


def wilson(right: int, count: int) -> tuple[float, float]:
    """Returns the 95 % interval of a share, between 0 and 1."""
    if not count:
        return 0.0, 1.0
    share, bound = right / count, _Z**2 / count
    middle = (share + bound / 2) / (1 + bound)
    half = _Z * math.sqrt(share * (1 - share) / count + bound / (4 * count)) / (1 + bound)
    return max(0.0, middle - half), min(1.0, middle + half)


def share(name: str, marks: Sequence[bool], goal: str = "", note: str = "") -> Figure:
    """Returns the share of true marks, in percent."""
    count, right = len(marks), sum(marks)
    low, high = wilson(right, count)
    value = 100 * right / count if count else 0.0
    return Figure(name, value, "%", count, 100 * low, 100 * high, goal, note=note)


def ratio(
    name: str, pairs: Sequence[tuple[float, float]], goal: str = "", note: str = ""
) -> Figure:
    """Returns the sum of the first values over that of the second, in percent; one pair per
    reply."""
    table = np.asarray(pairs, dtype=float).reshape(-1, 2)
    chosen = _resampled(len(table))
    sums = table[chosen].sum(1) if len(table) else np.ones((1, 2))  # [resamples, 2]
    spread = sums[:, 0] / np.maximum(sums[:, 1], 1e-9)
    low, high = (float(bound) for bound in np.percentile(spread, [2.5, 97.5]))
    value = float(table[:, 0].sum() / max(table[:, 1].sum(), 1e-9))
    return Figure(name, 100 * value, "%", len(table), 100 * low, 100 * high, goal, note=note)


def mean(
    name: str, values: Sequence[float], unit: Unit = "", goal: str = "", note: str = ""
) -> Figure:
    table = np.asarray(values, dtype=float)
    spread = table.std(ddof=1) if len(table) > 1 else 0.0
    half = float(_Z * spread / math.sqrt(max(1, len(table))))
    middle = float(table.mean()) if len(table) else 0.0
    return Figure(name, middle, unit, len(table), middle - half, middle + half, goal, note=note)


def median(
    name: str, values: Sequence[float], unit: Unit = "", goal: str = "", note: str = ""
) -> Figure:
    table = np.asarray(values, dtype=float)
    middle = float(np.median(table)) if len(table) else 0.0
    low, high = middle, middle
    if len(table):
        many = np.median(table[_resampled(len(table))], axis=1)
        low, high = (float(bound) for bound in np.percentile(many, [2.5, 97.5]))
    return Figure(name, middle, unit, len(table), low, high, goal, note=note)


def count_of(name: str, marks: Sequence[bool], goal: str = "", note: str = "") -> Figure:
    """Returns the number of true marks; the interval is that of the share times the count."""
    count, found = len(marks), sum(marks)
    low, high = wilson(found, count)
    return Figure(name, float(found), "count", count, count * low, count * high, goal, note=note)


def _resampled(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Returns [resamples, count] indices sampled with replacement, with a fixed seed."""
    if not count:
        return np.zeros((1, 0), dtype=np.int64)
    return np.random.default_rng(_SEED).integers(count, size=(_DRAWS, count))
