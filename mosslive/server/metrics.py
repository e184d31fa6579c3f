"""All Prometheus metrics of the server; docs/server.md has the table.

Events are counted when they happen, on the event loop. Values of the engine and the health of its
parts are read at each scrape. Does not know who measures.
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
from mosslive.server.capacity import Capacity
from mosslive.talk.speculative_reply import SpeculationRoom
from mosslive.talk.timing import TurnTiming

_TTFA_S = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10)
_RTF = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.5, 2, 4)
# Label values must stay bounded: error codes beyond this many are counted as "other".
_MOST_CODES = 64


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        known: dict[str, Any] = {"registry": self.registry, "namespace": "mosslive"}
        self.sessions = Gauge(
            "sessions_live", "Sessions that are open now.", ["transport"], **known
        )
        self.sessions_total = Counter("sessions", "Sessions started.", ["transport"], **known)
        self.session_seconds = Histogram(
            "session_seconds", "Duration of sessions.", buckets=(1, 10, 60, 600, 3600), **known
        )
        self.requests = Counter("http_requests", "HTTP requests.", ["path", "status"], **known)
        self.dropped = Counter(
            "sessions_dropped", "Sessions that the server ended.", ["reason"], **known
        )
        self.front_restarts = Counter(
            "front_restarts", "Front processes that died and were started again.", **known
        )
        self._refusals = Counter("refusals", "Refused requests and events.", ["code"], **known)
        self._codes: set[str] = set()
        self._ttfa = Histogram(
            "time_to_first_audio_seconds",
            "From the end of the user's turn to the first audio sample sent.",
            buckets=_TTFA_S,
            **known,
        )
        self._detection = Histogram(
            "turn_detection_seconds",
            "From the end of the user's speech until the end of the turn was detected.",
            buckets=_TTFA_S,
            **known,
        )
        self._rtf = Histogram(
            "reply_real_time_factor",
            "Wall time of a reply divided by its audio duration.",
            buckets=_RTF,
            **known,
        )
        self._turns = Counter("turns", "Replies sent.", ["reply"], **known)
        self._audio = Counter("reply_audio_seconds", "Reply audio produced.", **known)
        self._underruns = Counter(
            "underruns", "Gaps in replies, as heard: counted where audio is sent.", **known
        )
        self._silence = Counter("underrun_seconds", "Silence in audible gaps.", **known)

    def refused(self, code: str) -> None:
        if code not in self._codes and len(self._codes) >= _MOST_CODES:
            code = "other"
        self._codes.add(code)
        self._refusals.labels(code).inc()

    def gap(self, seconds: float) -> None:
        """Counts an audible gap within a reply."""
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
        stages: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """Adds the metrics of the engine, of the parts and of their stages, once they are
        loaded."""
        self.registry.register(_EngineCollector(stats, gpu_bytes))
        self.registry.register(_HealthCollector(parts))
        self.registry.register(_StageCollector(stages))

    def watch_held(self, tasks: Callable[[], int], codec: Callable[[], tuple[int, int]]) -> None:
        """Adds what sessions hold beside pages. `codec`: its open turns and replies."""
        held: dict[str, tuple[str, Callable[[], float]]] = {
            "event_loop_tasks": ("Tasks of the event loop.", tasks),
            "codec_turns": ("Turns of users that hold memory of the codec.", lambda: codec()[0]),
            "codec_replies": ("Replies that hold memory of the codec.", lambda: codec()[1]),
        }
        for name, (help_text, value) in held.items():
            gauge = Gauge(name, help_text, registry=self.registry, namespace="mosslive")
            gauge.set_function(value)

    def watch_capacity(self, capacity: Callable[[], Capacity]) -> None:
        """Adds the number of conversations that the server holds."""
        Gauge(
            "capacity_conversations",
            "Conversations that the server holds at present without gaps.",
            registry=self.registry,
            namespace="mosslive",
        ).set_function(lambda: capacity().conversations)

    def watch_speculation(self, room: SpeculationRoom) -> None:
        """Adds the numbers of speculative replies."""
        self.registry.register(_SpeculationCollector(room))

    def page(self) -> bytes:
        return generate_latest(self.registry)


class _HealthCollector(Collector):
    def __init__(self, parts: Mapping[str, Health]) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("mosslive_part_up", "1 if a part works, else 0.", labels=["part"])
        failures = CounterMetricFamily(
            "mosslive_part_failures", "Failed steps and jobs of a part.", labels=["part"]
        )
        for name, part in self._parts.items():
            up.add_metric([name], part.problem() is None)
            failures.add_metric([name], part.failures)
        yield up
        yield failures


class _SpeculationCollector(Collector):
    def __init__(self, room: SpeculationRoom) -> None:
        self._room = room

    def collect(self) -> Iterator[Metric]:
        ended = CounterMetricFamily(
            "mosslive_speculative_replies",
            "Replies begun in a pause, by whether the user had finished.",
            labels=["outcome"],
        )
        ended.add_metric(["adopted"], self._room.adopted)
        ended.add_metric(["dropped"], self._room.dropped)
        yield ended


class _StageCollector(Collector):
    def __init__(self, stages: Callable[[], Mapping[str, float]]) -> None:
        self._stages = stages

    def collect(self) -> Iterator[Metric]:
        spent = CounterMetricFamily(
            "mosslive_stage_seconds", "Time spent in steps of a stage.", labels=["stage"]
        )
        for stage, seconds in self._stages().items():
            spent.add_metric([stage], seconds)
        yield spent


class _EngineCollector(Collector):
    def __init__(
        self, stats: Callable[[], EngineStats], gpu_bytes: Callable[[], int | None]
    ) -> None:
        self._stats, self._gpu_bytes = stats, gpu_bytes

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        gauges = {
            "engine_conversations": ("Open conversations.", stats.conversations),
            "engine_replies": ("Replies in progress.", stats.replies),
            "engine_speaking": ("Spoken replies in progress.", stats.speaking),
            "engine_queued_rows": ("Rows appended and not computed yet.", stats.queued_rows),
            "engine_pages": ("Pages in the pool.", stats.pages),
            "engine_free_pages": ("Pages neither used nor reserved.", stats.free_pages),
            "engine_decode_step_seconds": (
                "Estimated duration of a decode step.",
                stats.decode_step_s,
            ),
        }
        for name, (help_text, value) in gauges.items():
            yield GaugeMetricFamily(f"mosslive_{name}", help_text, value=value)
        counters = {
            "engine_steps": ("Steps of the engine loop.", stats.steps),
            "engine_rows": ("Rows generated.", stats.rows_made),
            "engine_missed_deadlines": (
                "Rows generated after their playout time, counted from the first row. Audible "
                "only if no sound was rendered ahead: mosslive_underruns_total counts gaps.",
                stats.missed_deadlines,
            ),
        }
        for name, (help_text, value) in counters.items():
            yield CounterMetricFamily(f"mosslive_{name}", help_text, value=value)
        refusals = CounterMetricFamily(
            "mosslive_engine_refusals", "Work the engine refused.", labels=["reason"]
        )
        for reason, count in stats.refusals.items():
            refusals.add_metric([reason], count)
        yield refusals
        used = self._gpu_bytes()
        if used is not None:
            yield GaugeMetricFamily("mosslive_gpu_memory_bytes", "GPU memory in use.", value=used)
