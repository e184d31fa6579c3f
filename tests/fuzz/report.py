"""The figures of a soak: a JSON summary and an SVG plot of what the server held over time.

Pure functions of the collected samples; does not know how they were measured.
"""

import json
import platform
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.plot import panels
from tests.fuzz.resources import Held
from tests.fuzz.runs import Played

_PLOTTED = ("handles", "threads", "pages", "tasks")
_POINTS = 300  # of a line


@dataclass
class Totals:
    """All runs against one kind of server."""

    server: str
    fronts: int
    runs: int = 0
    sessions: int = 0
    events: int = 0
    received: int = 0
    seconds: float = 0.0
    ends: Counter[str] = field(default_factory=Counter)
    failed: list[dict[str, Any]] = field(default_factory=list)
    samples: list[tuple[int, Held]] = field(default_factory=list)  # (sessions so far, held)

    def add(self, played: Played, sessions: int) -> None:
        self.runs += 1
        self.sessions += sessions
        self.events += played.events
        self.received += played.received
        self.ends += played.ends
        self.samples.append((self.sessions, played.after))

    def document(self) -> dict[str, Any]:
        first, last = self.samples[0][1], self.samples[-1][1]
        memory = [held.memory_mib for _, held in self.samples]
        quarter = max(1, len(memory) // 4)
        late = memory[-quarter:]
        early = memory[quarter : 2 * quarter] or memory
        return {
            "server": self.server,
            "fronts": self.fronts,
            "runs": self.runs,
            "sessions": self.sessions,
            "events_sent": self.events,
            "events_received": self.received,
            "seconds": round(self.seconds, 1),
            "ends": dict(self.ends),
            "held_at_first": first.counts | {"memory_mib": round(first.memory_mib, 1)},
            "held_at_last": last.counts | {"memory_mib": round(last.memory_mib, 1)},
            # The second quarter against the last: the first fills pools and caches.
            "memory_growth_mib": round(sum(late) / len(late) - sum(early) / len(early), 1),
            "failed": self.failed,
        }


def write(totals: list[Totals], folder: Path) -> dict[str, Any]:
    """Writes `soak.json` and a plot per server. Returns the summary."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "servers": [each.document() for each in totals],
    }
    (folder / "soak.json").write_text(json.dumps(summary, indent=1) + "\n")
    for each in totals:
        name = f"soak-{each.server}-{each.fronts}.svg"
        (folder / name).write_text(plot(each))
    return summary


def plot(totals: Totals) -> str:
    step = max(1, len(totals.samples) // _POINTS)
    samples = totals.samples[::step]
    series = {
        "memory, MiB": [(float(x), round(held.memory_mib, 1)) for x, held in samples],
    }
    for name in _PLOTTED:
        series[name] = [(float(x), float(held.counts[name])) for x, held in samples]
    title = f"After each run: {totals.server} server, {totals.fronts} fronts"
    return panels(title, series, "sessions")
