"""Starts the servers that are fuzzed, each in a process of its own.

| name | is |
|---|---|
| `toy` | the real server with the nano language model and a codec that costs nothing: fast |
| `bundled` | `mosslive serve` as users start it, with the bundled model |
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fuzz.record import REPLY_S
from tests.server.processes import Process, faulty, started


@asynccontextmanager
async def serving(name: str, folder: Path, fronts: int = 0) -> AsyncIterator[Process]:
    """`folder`: of the nano language model, for `toy`."""
    if name == "toy":
        nothing = folder / "no switch"
        async with faulty(folder, nothing, "none", reply_s=REPLY_S, fronts=fronts) as served:
            yield served
        return
    flags = ("--port", "0", "--max-reply-s", str(REPLY_S), "--admit-overload")
    async with started("mosslive", "serve", *flags, "--fronts", str(fronts)) as served:
        yield served
