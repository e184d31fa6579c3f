"""Overload test: are replies produced slower than they are played, whatever the reason?

The second guard at the door. `capacity.py` predicts from the times of steps; this test looks at the
result, so it also sees what no step has: a busy event loop, slow sockets, other processes. The cost
of audio is the time to produce it divided by the time to play it. Above 1 a listener hears gaps.
Each measurement records the number of replies that ran at that time. The cost of one more reply is
extrapolated from the medians at the smallest and the largest number.

Pure functions of recent measurements, called on the event loop. Too few measurements mean that the
server is not overloaded.
"""

from collections.abc import Iterable
from statistics import median

from mosslive.talk.production import Sample

WINDOW_S = 15.0  # older measurements are ignored
LEAST = 3  # measurements needed at one number of replies; fewer are noise
MOST_COST = 1.0


def next_cost(samples: Iterable[Sample], now: float) -> float | None:
    """The cost of audio with one reply more than the recent maximum; None: unknown."""
    costs: dict[int, list[float]] = {}
    for sample in samples:
        if now - sample.at <= WINDOW_S:
            costs.setdefault(sample.replies, []).append(sample.cost)
    typical = {replies: median(some) for replies, some in costs.items() if len(some) >= LEAST}
    if not typical:
        return None
    few, many = min(typical), max(typical)
    rise = (typical[many] - typical[few]) / (many - few) if many > few else 0.0
    return typical[many] + max(0.0, rise)


def is_overloaded(samples: Iterable[Sample], now: float) -> bool:
    cost = next_cost(samples, now)
    return cost is not None and cost > MOST_COST
