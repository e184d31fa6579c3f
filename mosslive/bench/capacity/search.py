"""Searches the largest load that keeps the promise. Pure functions of the levels measured so far.

Doubles while levels are kept, halves while none is, then bisects. Assumes that a level below one
that is kept would be kept too. Knows no measurement, only its verdict.
"""

from collections.abc import Mapping

_FINE = 8  # the search ends when the two bounds are within an eighth of the lower one
_FIRST = 32  # the first level is this part of the largest


def next_level(kept: Mapping[int, bool], most: int) -> int | None:
    """`kept`: by level, whether the promise was kept. None: the search is over."""
    if not kept:
        return max(1, most // _FIRST)
    low = max_kept(kept)
    broken = [level for level, good in kept.items() if not good and level > low]
    if not broken:
        return None if low >= most else min(most, 2 * low)
    high = min(broken)
    if low == 0:
        return high // 2 if high > 1 else None
    if high - low <= max(1, low // _FINE):
        return None
    return (low + high) // 2


def max_kept(kept: Mapping[int, bool]) -> int:
    """The largest level below which no level is broken; 0 if there is none."""
    good = 0
    for level in sorted(kept):
        if not kept[level]:
            break
        good = level
    return good
