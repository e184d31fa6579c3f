"""The report of a capacity benchmark: the curve as a table, as plots and as JSON.

Pure functions of measured figures.
"""

import platform
from dataclasses import dataclass, replace
from typing import Any

from mosslive.bench.capacity.level import LevelFigures
from mosslive.bench.capacity.search import max_kept
from mosslive.bench.capacity.settings import CapacitySettings
from mosslive.bench.report import BenchResult, Table, conditions_of
from mosslive.bench.svg import Line, Plot

_COLUMNS: tuple[str, ...] = (
    "conversations",
    "at once",
    "TTFA p50",
    "p95",
    "p99 ms",
    "gaps",
    "gap s",
)
_COLUMNS += ("replies with a gap", "server's gaps", "refused", "replies", "reply s")
_COLUMNS += ("interrupted", "failed", "late ms", "promise")


@dataclass(frozen=True)
class Capacity:
    settings: CapacitySettings
    levels: tuple[LevelFigures, ...]  # by conversations

    @property
    def held(self) -> int:
        """The largest load that keeps the promise, as far as it was tried; 0: none."""
        return max_kept({one.conversations: one.holds for one in self.levels})

    def document(self) -> dict[str, Any]:
        levels = [one.document() for one in self.levels]
        return self.as_bench_result().document() | {"held": self.held, "levels": levels}

    def as_bench_result(self) -> BenchResult:
        settings, levels = self.settings, self.levels
        figures: dict[str, Any] = {"conversations that keep the promise": self.held}
        for one in levels:
            for fault, count in one.faults.items():
                figures[f"{one.conversations} conversations, failed: {fault}"] = count
            if one.unasked:
                figures[f"{one.conversations} conversations, turns ended too early"] = one.unasked
        device = settings.subject.device if settings.subject else settings.device
        size, weights = _subject(settings)
        conditions = conditions_of(settings.command, device, size, weights, _notes(settings))
        if settings.url:  # the device is the server's
            where = f"server at {settings.url}, callers on {platform.machine()}"
            conditions = replace(conditions, device=where)
        tables = [Table(_COLUMNS, tuple(map(_line, levels)))]
        stages = list(dict.fromkeys(name for one in levels for name in one.stage_shares))
        if stages:
            shares = tuple(
                (one.conversations, *(f"{one.stage_shares.get(s, 0.0):.1%}" for s in stages))
                for one in levels
            )
            tables.append(Table(("conversations", *(f"{s}, share" for s in stages)), shares))
        return BenchResult(
            "capacity",
            conditions,
            None,
            (),
            figures=figures,
            tables=tuple(tables),
            plots=_plots(levels, settings.promise.ttfa_ms, stages),
        )


def _subject(settings: CapacitySettings) -> tuple[str, str]:
    if settings.subject:
        return settings.subject.shown_size, settings.subject.shown_weights
    return (f"model {settings.model}", "its weights") if settings.model else ("a server", "unknown")


def _notes(settings: CapacitySettings) -> dict[str, str]:
    ends, sockets = settings.ends, 1.0 if settings.url else settings.sockets
    silence = (
        f" and the {ends.silence_ms} ms of silence that end a turn are subtracted"
        if ends.detected
        else ", which is committed (no turn detection)"
    )
    return {
        "promise": f"95 % of the replies begin within {settings.promise.ttfa_ms:g} ms, no reply "
        "has a gap, none fails, and no call is refused",
        "conversations": "callers, each with one call at a time; `at once` is the largest number "
        "of calls that were open together after the ramp",
        "load": settings.load.described,
        "callers": f"{sockets:.0%} over WebSockets from other processes, the others in this "
        "process; 20 ms packets of 24 kHz in real time",
        "TTFA": "from the last sample of speech that was sent until the first sound arrives"
        f"{silence}",
        "gaps": "as heard: playing begins with the first sound and goes on in real time; "
        "`server's gaps` are those of its /metrics, over sockets only",
        "verified": "every reply: 1920 samples a code, sound finite (in this process) or decoded "
        "and not silent (over sockets, one reply in 8)",
        "late": "how late a caller sent a packet at worst; far above 20 ms the callers, not the "
        "server, may cause what they hear",
        "shares": "wall time in the steps of a stage over the time of the level; stages overlap",
    }


def _line(one: LevelFigures) -> tuple[Any, ...]:
    times = [f"{one.ttfa_ms[name]:.0f}" if one.ttfa_ms else "" for name in ("p50", "p95", "p99")]
    server = "" if one.server_gaps is None else f"{one.server_gaps:g} of {one.socket_gaps}"
    verdict = "kept" if one.holds else ("kept to those let in" if one.kept else "broken")
    return (
        *(one.conversations, one.held_most, *times, one.gaps, f"{one.gap_s:.2f}"),
        *(f"{one.gap_share:.1%}", server, one.refused, one.replies, f"{one.reply_s:.1f}"),
        *(one.interrupted, one.failed, f"{one.late_ms:.0f}", verdict),
    )


def _plots(levels: tuple[LevelFigures, ...], ttfa_ms: float, stages: list[str]) -> tuple[Plot, ...]:
    x_name = "conversations"
    timed = [one for one in levels if one.ttfa_ms]
    plots = []
    if timed:
        lines = [
            Line(name, [(float(one.conversations), one.ttfa_ms[name]) for one in timed], colour)
            for colour, name in enumerate(("p50", "p95", "p99"))
        ]
        promise = [(float(one.conversations), ttfa_ms) for one in timed]
        lines.append(Line("promise (p95)", promise, 3, dashed=True))
        plots.append(Plot("Time to first audio by conversations", tuple(lines), x_name, "ms"))
        gaps = [(float(one.conversations), 100 * one.gap_share) for one in timed]
        title = "Replies with a gap by conversations"
        plots.append(Plot(title, (Line("replies with a gap", gaps, 0),), x_name, "%"))
    if any(one.refused for one in levels):
        refused = [(float(one.conversations), float(one.refused)) for one in levels]
        title = "Refused calls by conversations"
        plots.append(Plot(title, (Line("refused", refused, 1),), x_name, "calls"))
    if stages:
        lines = [
            Line(
                stage,
                [
                    (float(one.conversations), 100 * one.stage_shares.get(stage, 0))
                    for one in levels
                ],
                colour % 4,
            )
            for colour, stage in enumerate(stages)
        ]
        plots.append(Plot("Share of the time by stage", tuple(lines), x_name, "%"))
    return tuple(plots)
