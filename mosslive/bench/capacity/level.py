"""The figures of one level, computed from what its callers heard. Pure functions.

Percentiles are measured values, not interpolated ones. The time to first audio leaves out the
silence that ends a detected turn, because it is a setting and not a cost. Figures of time are of
questions that end after the ramp; gaps and failures are of the whole level, as the server counts
them.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from mosslive.bench.capacity.metrics_page import Counters
from mosslive.bench.capacity.outcome import HeardReply, Outcome
from mosslive.bench.capacity.questions import RATE_HZ
from mosslive.bench.talk.timing_report import quantile

_FAULTS_SHOWN = 5


@dataclass(frozen=True)
class Promise:
    """What a conversation is promised: no gap, and a first sound in time."""

    ttfa_ms: float = 500.0  # 95th percentile


@dataclass(frozen=True)
class LevelFigures:
    conversations: int  # callers
    socket_callers: int  # of them
    held_most: int  # conversations at once
    held_mean: float
    calls: int
    refused: int  # calls at the door, and turns
    replies: int
    ttfa_ms: dict[str, float]  # p50, p95, p99; empty: no reply was timed
    gaps: int
    gap_s: float
    gap_share: float  # of replies with a gap
    server_gaps: float | None  # as the server counts them, of its socket callers
    server_gap_s: float | None
    socket_gaps: int  # as the socket callers heard them
    interrupted: int
    failed: int
    faults: dict[str, int]  # the most frequent ones
    unasked: int
    reply_s: float  # mean length
    late_ms: float  # of a caller's packet at worst
    stage_shares: dict[str, float]  # of the level's time
    kept: bool  # the promise, to those who were let in

    @property
    def holds(self) -> bool:
        """Whether all callers were let in and the promise was kept."""
        return self.kept and not self.refused

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}


def level_figures(
    conversations: int,
    sockets: Outcome,
    local: Outcome,
    *,
    ramp_s: float,
    until_s: float,
    waited_s: float,
    wall_s: float,
    counters: Counters,
    promise: Promise,
    socket_callers: int,
) -> LevelFigures:
    """`sockets`, `local`: what callers heard over sockets and in this process. `waited_s`: the
    silence that ends a turn. `wall_s`: between the two readings of `counters`."""
    both = Outcome()
    both.add(sockets)
    both.add(local)
    replies = [one for one in both.replies if one.status != "refused"]
    firsts = sorted(
        1000 * (one.ttfa_s - waited_s)
        for one in replies
        if one.ttfa_s is not None and one.asked_at >= ramp_s
    )
    ttfa = {name: quantile(firsts, share) for name, share in _SHARES.items() if firsts}
    gaps = sum(one.gaps for one in replies)
    failed = [one for one in replies if one.status == "failed"]
    faults = Counter([one.fault for one in failed] + both.faults)
    held = held_over_time(both.calls, ramp_s, until_s)
    heard = [one for one in replies if one.status == "heard"]
    kept = bool(ttfa) and ttfa["p95"] <= promise.ttfa_ms and not gaps and not faults
    return LevelFigures(
        conversations=conversations,
        socket_callers=socket_callers,
        held_most=held[0],
        held_mean=held[1],
        calls=len(both.calls),
        refused=both.refused + len(both.replies) - len(replies),
        replies=len(replies),
        ttfa_ms=ttfa,
        gaps=gaps,
        gap_s=sum(one.silence_s for one in replies),
        gap_share=_share(sum(one.gaps > 0 for one in replies), len(replies)),
        server_gaps=counters.gaps,
        server_gap_s=counters.silence_s,
        socket_gaps=sum(one.gaps for one in sockets.replies),
        interrupted=sum(one.status == "interrupted" for one in replies),
        failed=sum(faults.values()),
        faults=dict(faults.most_common(_FAULTS_SHOWN)),
        unasked=both.unasked,
        reply_s=_mean_s(heard),
        late_ms=1000 * both.late_s,
        stage_shares={name: _share(s, wall_s) for name, s in counters.stages_s.items()},
        kept=kept,
    )


_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def held_over_time(
    calls: list[tuple[float, float]], begin_s: float, end_s: float
) -> tuple[int, float]:
    """The most calls at once and their mean number, between two moments."""
    changes = sorted(
        change
        for begin, end in calls
        if begin < end_s and end > begin_s
        for change in ((max(begin, begin_s), 1), (min(end, end_s), -1))
    )  # of equal moments, ends come first
    most = now = 0
    area, before = 0.0, begin_s
    for moment, change in changes:
        area += now * (moment - before)
        now, before = now + change, moment
        most = max(most, now)
    return most, area / (end_s - begin_s) if end_s > begin_s else 0.0


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _mean_s(replies: list[HeardReply]) -> float:
    return _share(sum(one.samples for one in replies) / RATE_HZ, len(replies))
