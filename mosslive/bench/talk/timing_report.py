"""Summarises the timing of many turns as rows and figures of a report."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from mosslive.bench.report import BenchRow
from mosslive.bench.timing import summary
from mosslive.talk.timing import TurnTiming

_GOAL_MS = {1: 90.0}  # time to first audio, median
_GOALS = {
    "time to first audio, p95, ms": {8: "<= 200"},
    "real-time factor, median": {1: "<= 0.10"},
    "underruns": {8: "none"},
}


def talk_rows(
    conversations: int, timings: Sequence[TurnTiming], precision: str, goals: bool
) -> list[BenchRow]:
    """Returns the time to first audio and each of its stages in order."""
    heard = round(statistics.median(timing.codes_heard for timing in timings))

    def row(what: str, seconds: Sequence[float], goal_ms: float | None = None) -> BenchRow:
        times = summary([1000 * one for one in seconds])
        return BenchRow(what, "mosslive", precision, conversations, heard, times, goal_ms=goal_ms)

    goal_ms = _GOAL_MS.get(conversations) if goals else None
    rows = [row("time to first audio", [timing.ttfa_s or 0.0 for timing in timings], goal_ms)]
    for stage in timings[0].stages:
        rows.append(row(f"of it, {stage}", [timing.stages[stage] for timing in timings]))
    rows.append(row("codec, a first chunk", [timing.first_render_s for timing in timings]))
    rows.append(row("codec, end of a question", [timing.finish_s for timing in timings]))
    return rows


def talk_figures(conversations: int, timings: Sequence[TurnTiming]) -> dict[str, Any]:
    firsts = sorted(1000 * (timing.ttfa_s or 0.0) for timing in timings)
    factors = [timing.rtf or 0.0 for timing in timings]
    whole = sum(firsts)
    figures: dict[str, Any] = {
        "time to first audio, p50, ms": statistics.median(firsts),
        "time to first audio, p95, ms": quantile(firsts, 0.95),
        "time to first audio, p99, ms": quantile(firsts, 0.99),
        "real-time factor, median": statistics.median(factors),
        "real-time factor, largest": max(factors),
        "underruns": sum(timing.underruns for timing in timings),
        "replies": len(timings),
        "codes revised at the end of a question": sum(t.codes_revised for t in timings),
    }
    for stage in timings[0].stages:
        share = sum(1000 * timing.stages[stage] for timing in timings) / whole if whole else 0.0
        figures[f"share of {stage}"] = share
    named = {}
    for name, value in figures.items():
        goal = _GOALS.get(name, {}).get(conversations)
        shown = f"{name} (goal {goal})" if goal else name
        named[f"{conversations} conversations, {shown}"] = value
    return named


def quantile(ordered: Sequence[float], share: float) -> float:
    """Returns the smallest value that at least this share of the values does not exceed."""
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]
