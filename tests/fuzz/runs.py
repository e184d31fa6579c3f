"""Plays runs against one server, and collects what is wrong afterwards.

A server that failed in a way that lasts (a session that never ends, handles that are not given
back) is replaced by a new one before the next run.
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.fuzz.generate import Shape, run_of
from tests.fuzz.invariants import broken_rules, log_faults
from tests.fuzz.player_webrtc import missing
from tests.fuzz.players import play
from tests.fuzz.record import Record
from tests.fuzz.resources import CALL_QUIET_S, QUIET_S, Held, held, quiet
from tests.fuzz.script import Run, events_of
from tests.fuzz.server import serving
from tests.server.processes import Process

WARM_UP = 4  # runs that fill pools, caches and lazy imports, before the first count
_MEMORY_MIB = 96  # that one run may add; lasting growth is seen over many runs


@dataclass
class Played:
    """The result of one run."""

    failures: list[str]
    after: Held
    events: int  # sent
    received: int
    ends: Counter[str] = field(default_factory=Counter)  # how sessions ended


class Target:
    """One kind of server, and the process that serves at present."""

    def __init__(self, name: str, folder: Path, fronts: int = 0, warm_up: int = WARM_UP) -> None:
        """`warm_up`: how many runs are played before the first count."""
        self._name, self._folder, self._fronts = name, folder, fronts
        self._warm_up = warm_up
        self._stack = AsyncExitStack()
        self._served: Process | None = None
        self.before: Held | None = None
        self.starts = 0

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self._stack.aclose()

    async def play(self, run: Run) -> Played:
        """Plays a run. Starts another server afterwards if this one did not recover."""
        if self._served is None:
            await self._start()
        assert self._served is not None
        assert self.before is not None
        served = self._served
        failures, records = await _play_all(run, served)
        left, after = "", self.before
        if served.process.returncode is not None:
            failures.append(f"ended: the server, with status {served.process.returncode}")
        else:
            calls = any(session.transport == "webrtc" for session in run)
            most_s = CALL_QUIET_S if calls else QUIET_S
            after, left = await quiet(served, self.before, most_s)
            if left:
                failures.append(left)
            elif after.memory_mib > self.before.memory_mib + _MEMORY_MIB:
                failures.append(
                    f"memory: {self.before.memory_mib:.0f} → {after.memory_mib:.0f} MiB"
                )
            self.before = Held(self.before.counts, max(self.before.memory_mib, after.memory_mib))
        failures += log_faults(served.log)
        served.log.clear()
        if failures:
            await self._stack.aclose()
            self._served = None
        ends = Counter(map(_end, records))
        received = sum(len(record.events) + record.responses for record in records)
        return Played(failures, after, events_of(run), received, ends)

    async def _start(self) -> None:
        self._served = await self._stack.enter_async_context(
            serving(self._name, self._folder, self._fronts)
        )
        self.starts += 1
        shape = Shape(sessions=4, steps=20, webrtc=0.0 if missing() else 0.3)
        for seed in range(self._warm_up):
            await _play_all(run_of(seed, shape), self._served)
        await asyncio.sleep(0.2)
        await quiet(self._served, await held(self._served))
        self.before = await _settled(self._served)
        self._served.log.clear()


async def _play_all(run: Run, served: Process) -> tuple[list[str], list[Record]]:
    records = await asyncio.gather(*(play(session, served) for session in run))
    return [text for record in records for text in broken_rules(record)], list(records)


async def _settled(served: Process) -> Held:
    """What an idle server holds: the lowest counts of a few."""
    seen = []
    for _ in range(20):
        seen.append(await held(served))
        await asyncio.sleep(0.05)
    lowest = {name: min(each.counts[name] for each in seen) for name in seen[0].counts}
    # Worker threads of asyncio start when they are needed, up to a few; a leak exceeds that.
    lowest["threads"] += 8
    return Held(lowest, max(each.memory_mib for each in seen))


def _end(record: Record) -> str:
    if record.refused and record.session.transport != "http":
        return f"refused {record.refused}"
    if record.session.transport == "http":
        return "http"
    if record.answered:
        return "answered"
    return f"closed {record.close[0]}" if record.close else "left"
