"""Every metric of the server, in one place. docs/server.md has the table.

Numbers about work are counted as it happens; numbers about the engine are read when asked for.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mosslive.engine import EngineStats
from mosslive.engine.health import Health
from mosslive.talk.timing import TurnTiming

_TTFA_S = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10)
_RTF = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.5, 2, 4)
# Codes of refusals a client could otherwise choose freely; the rest is counted together.
_MOST_CODES = 64


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        known: dict[str, Any] = {"registry": self.registry, "namespace": "mosslive"}
        self.sessions = Gauge("sessions_live", "Live sessions.", ["transport"], **known)
        self.sessions_total = Counter("sessions", "Sessions begun.", ["transport"], **known)
        self.session_seconds = Histogram(
            "session_seconds", "How long sessions lasted.", buckets=(1, 10, 60, 600, 3600), **known
        )
        self.requests = Counter("http_requests", "Requests.", ["path", "status"], **known)
        self.dropped = Counter("sessions_dropped", "Sessions we ended.", ["reason"], **known)
        self._refusals = Counter("refusals", "Requests refused.", ["code"], **known)
        self._codes: set[str] = set()
        self._ttfa = Histogram(
            "time_to_first_audio_seconds",
            "From the end of the user's turn to the first sample handed out.",
            buckets=_TTFA_S,
            **known,
        )
        self._detection = Histogram(
            "turn_detection_seconds",
            "From the last of the user's speech until the turn was known to be over.",
            buckets=_TTFA_S,
            **known,
        )
        self._rtf = Histogram(
            "reply_real_time_factor", "Wall time of a reply over its sound.", buckets=_RTF, **known
        )
        self._turns = Counter("turns", "Replies given.", ["reply"], **known)
        self._audio = Counter("reply_audio_seconds", "Sound made.", **known)
        self._underruns = Counter("underruns", "Gaps that listeners heard.", **known)
        self._silence = Counter("underrun_seconds", "Silence in these gaps.", **known)

    def refused(self, code: str) -> None:
        if code not in self._codes and len(self._codes) >= _MOST_CODES:
            code = "other"
        self._codes.add(code)
        self._refusals.labels(code).inc()

    def gap(self, seconds: float) -> None:
        """A listener heard nothing for so long in the middle of a reply."""
        self._underruns.inc()
        self._silence.inc(seconds)

    def turn(self, timing: TurnTiming) -> None:
        self._turns.labels(timing.reply).inc()
        self._audio.inc(timing.audio_s)
        for histogram, value in (
            (self._ttfa, timing.ttfa_s),
            (self._detection, timing.detection_s),
            (self._rtf, timing.rtf),
        ):
            if value is not None:
                histogram.observe(max(0.0, value))

    def watch(
        self,
        stats: Callable[[], EngineStats],
        gpu_bytes: Callable[[], int | None],
        parts: Mapping[str, Health],
    ) -> None:
        """From when the engine is there."""
        self.registry.register(_EngineCollector(stats, gpu_bytes))
        self.registry.register(_HealthCollector(parts))

    def page(self) -> bytes:
        return generate_latest(self.registry)


class _HealthCollector(Collector):
    def __init__(self, parts: Mapping[str, Health]) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("mosslive_part_up", "Whether a part works.", labels=["part"])
        failures = CounterMetricFamily(
            "mosslive_part_failures", "Failed steps and jobs of a part.", labels=["part"]
        )
        for name, part in self._parts.items():
            up.add_metric([name], part.problem() is None)
            failures.add_metric([name], part.failures)
        yield up
        yield failures


class _EngineCollector(Collector):
    def __init__(
        self, stats: Callable[[], EngineStats], gpu_bytes: Callable[[], int | None]
    ) -> None:
        self._stats, self._gpu_bytes = stats, gpu_bytes

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        gauges = {
            "engine_conversations": ("Open conversations.", stats.conversations),
            "engine_replies": ("Replies being made.", stats.replies),
            "engine_speaking": ("Of these, speech.", stats.speaking),
            "engine_queued_rows": ("Rows appended and not computed yet.", stats.queued_rows),
            "engine_pages": ("Pages of the pool.", stats.pages),
            "engine_free_pages": ("Pages neither taken nor promised.", stats.free_pages),
            "engine_decode_step_seconds": ("Estimate of a decode step.", stats.decode_step_s),
        }
        for name, (says, value) in gauges.items():
            yield GaugeMetricFamily(f"mosslive_{name}", says, value=value)
        counters = {
            "engine_steps": ("Steps of the engine.", stats.steps),
            "engine_rows": ("Rows made.", stats.rows_made),
            "engine_missed_deadlines": ("Rows that came too late.", stats.missed_deadlines),
        }
        for name, (says, value) in counters.items():
            yield CounterMetricFamily(f"mosslive_{name}", says, value=value)
        refusals = CounterMetricFamily(
            "mosslive_engine_refusals", "Work the engine refused.", labels=["reason"]
        )
        for reason, count in stats.refusals.items():
            refusals.add_metric([reason], count)
        yield refusals
        used = self._gpu_bytes()
        if used is not None:
            yield GaugeMetricFamily("mosslive_gpu_memory_bytes", "GPU memory taken.", value=used)
