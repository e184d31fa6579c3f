"""Reads the counters of a server from its `/metrics`: gaps, and seconds of each stage.

Blocking functions of the standard library; call them on a thread. A server without the page, or of
another make, has no counters.
"""

import urllib.error
import urllib.request
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_TIMEOUT_S = 10.0
_GAPS = "mosslive_underruns_total"
_SILENCE = "mosslive_underrun_seconds_total"
_STAGES = "mosslive_stage_seconds_total"


@dataclass(frozen=True)
class Counters:
    gaps: float | None = None  # None: unknown
    silence_s: float | None = None
    stages_s: dict[str, float] = field(default_factory=dict)

    def since(self, before: "Counters") -> "Counters":
        """The difference to an earlier reading."""
        stages = {name: s - before.stages_s.get(name, 0.0) for name, s in self.stages_s.items()}
        return Counters(
            _difference(self.gaps, before.gaps),
            _difference(self.silence_s, before.silence_s),
            stages,
        )


def read_counters(realtime_url: str, key: str | None = None) -> Counters:
    """Of the server with this Realtime address."""
    parts = urlsplit(realtime_url)
    scheme = "https" if parts.scheme in ("wss", "https") else "http"
    request = urllib.request.Request(f"{scheme}://{parts.netloc}/metrics")
    if key:
        request.add_header("authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            return parse_counters(answer.read().decode(errors="replace"))
    except (urllib.error.URLError, OSError, ValueError):
        return Counters()


def parse_counters(page: str) -> Counters:
    sums: dict[str, float] = {}
    stages: dict[str, float] = {}
    for line in page.splitlines():
        if line.startswith("#") or " " not in line:
            continue
        name_labels, value = line.rsplit(" ", 1)
        name, _, labels = name_labels.partition("{")
        sums[name] = sums.get(name, 0.0) + float(value)
        if name == _STAGES:
            stage = labels.partition('stage="')[2].partition('"')[0]
            stages[stage] = stages.get(stage, 0.0) + float(value)
    return Counters(sums.get(_GAPS), sums.get(_SILENCE), stages)


def _difference(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before
