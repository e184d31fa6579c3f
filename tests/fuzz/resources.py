"""What a server holds: sessions, pages, tasks, file handles, threads, memory; before and after.

Read from outside: by `/metrics`, and by `/proc` for the process and its fronts. Processes that
decode audio files are left out: the server keeps them.
"""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.record import PATIENCE
from tests.server.processes import Process

# After the last client has left, all of it is given back within this time.
QUIET_S = 10.0 * PATIENCE
# A call whose goodbye was lost, as UDP may, ends when the peer has not answered six checks of ICE,
# 5 s apart (RFC 7675).
CALL_QUIET_S = 45.0 * PATIENCE
GAUGES = {
    "sessions": "mosslive_sessions_live",
    "conversations": "mosslive_engine_conversations",
    "replies": "mosslive_engine_replies",
    "codec turns": "mosslive_codec_turns",
    "codec replies": "mosslive_codec_replies",
    "tasks": "mosslive_event_loop_tasks",
}
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Held:
    """Counts by name. `memory_mib` of all processes together, without shared pages."""

    counts: dict[str, int]
    memory_mib: float

    def more_than(self, before: "Held") -> dict[str, tuple[int, int]]:
        """The counts that are higher: before and now."""
        return {
            name: (before.counts[name], now)
            for name, now in self.counts.items()
            if now > before.counts[name]
        }


async def held(served: Process) -> Held:
    page = (await served.get("/metrics")).text
    values: dict[str, float] = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            name = name.partition("{")[0]
            values[name] = values.get(name, 0.0) + float(value)
    counts = {name: round(values.get(metric, 0.0)) for name, metric in GAUGES.items()}
    counts["pages"] = round(values["mosslive_engine_pages"] - values["mosslive_engine_free_pages"])
    everyone = family(served.process.pid)
    processes = [each for each in everyone if not is_decoder(each)]
    pipes = 2 * (len(everyone) - len(processes))  # of the server, to and from its decoders
    counts["handles"] = sum(len(_list(f"/proc/{each}/fd")) for each in processes) - pipes
    counts["threads"] = sum(len(_list(f"/proc/{each}/task")) for each in processes)
    return Held(counts, sum(map(_private_mib, processes)))


async def quiet(served: Process, before: Held, most_s: float = QUIET_S) -> tuple[Held, str]:
    """Waits until the server holds no more than before. Returns what it holds, and what is left."""
    end = time.monotonic() + most_s
    while True:
        now = await held(served)
        left = now.more_than(before)
        if not left:
            return now, ""
        if time.monotonic() > end:
            text = ", ".join(f"{name} {old} → {new}" for name, (old, new) in left.items())
            return now, f"left behind after {most_s:g} s: {text}"
        await asyncio.sleep(0.02)


def family(pid: int) -> list[int]:
    """A process and all processes below it."""
    found = [pid]
    for task in _list(f"/proc/{pid}/task"):
        try:
            text = Path(f"/proc/{pid}/task/{task}/children").read_text()
        except OSError:
            continue
        for child in text.split():
            found += family(int(child))
    return found


def is_decoder(pid: int) -> bool:
    """Whether it decodes audio files. The server starts up to two of them with the first uploads
    and keeps them."""
    try:
        return b"mosslive.server.decode_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _private_mib(pid: int) -> float:
    try:
        _, resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[:3])
    except OSError:
        return 0.0
    return (resident - shared) * _PAGE_BYTES / (1 << 20)


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
