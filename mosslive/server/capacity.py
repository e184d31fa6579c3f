"""Whether one more caller would hear gaps, judged from how fast replies are made now.

The cost of sound is the time to make it over the time to play it; above 1 a listener hears gaps.
Costs are measured with the number of replies that were being made. What one reply more would cost
is read off the line through the medians of the smallest and the largest number: on a CPU the cost
grows with each reply, on a GPU that serves many in one step it hardly does.

A pure function of recent measurements. Without enough of them nobody is refused.
"""

from collections.abc import Iterable
from statistics import median

from mosslive.talk.production import Sample

WINDOW_S = 15.0  # older measurements say nothing about now
LEAST = 3  # measurements with the same number of replies, below which they are chance
MOST_COST = 1.0


def next_cost(samples: Iterable[Sample], now: float) -> float | None:
    """The cost of sound if one more reply were made than at most recently; None: not known."""
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
