"""Servers in a process of their own, for tests that stop, break or overload one."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect

from tests.server.bench import message
from tests.server.rig import MANUAL, WAIT_S, Event, Peer

ROOT = Path(__file__).parents[2]


@dataclass
class Process:
    """A server, its log, and the switch of its fault."""

    process: asyncio.subprocess.Process
    port: int
    switch: Path
    log: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime?model=test"

    def on(self, value: float = 0.0) -> None:
        """Activates the fault."""
        self.switch.write_text(str(value))

    def off(self) -> None:
        self.switch.unlink()

    async def get(self, path: str) -> httpx.Response:
        async with self._http() as http:
            return await http.get(path)

    async def speak(self, text: str = "hello") -> httpx.Response:
        """Requests one complete spoken reply."""
        async with self._http() as http:
            asked = {"input": text, "response_format": "pcm", "voice": "default"}
            return await http.post("/v1/audio/speech", json=asked)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Peer]:
        async with connect(self.ws, max_size=None) as socket:
            peer = Peer(socket)
            await peer.until("conversation.created")
            await peer.send("session.update", session=MANUAL)
            yield peer

    async def ask(self, peer: Peer | None = None) -> Event:
        """One spoken reply, of a new session unless one is given; returns the response."""
        if peer is None:
            async with self.session() as fresh:
                return await self.ask(fresh)
        await peer.send("conversation.item.create", item=message("hello"))
        await peer.send("response.create")
        done: Event = (await peer.until("response.done"))["response"]
        return done

    async def metric(self, name: str) -> float:
        """The value of a metric, summed over its labels."""
        lines = (await self.get("/metrics")).text.splitlines()
        found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)

    def logged(self, text: str) -> list[dict[str, Any]]:
        return [line for line in self.log if text in line["message"]]

    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=WAIT_S)


@asynccontextmanager
async def faulty(
    folder: Path,
    switch: Path,
    fault: str,
    *,
    on: float | None = None,
    reply_s: float = 1.6,
    admit_overload: bool = True,
    fronts: int = 0,
) -> AsyncIterator[Process]:
    """A server that is ready. `on`: the fault is in force from the beginning, with this value.
    `admit_overload`: otherwise a busy machine would refuse clients at random."""
    if on is not None:
        switch.write_text(str(on))
    options = (str(folder), str(switch), fault, str(reply_s), str(admit_overload))
    async with started("tests.server.faulty", *options, switch=switch, fronts=fronts) as served:
        yield served


@asynccontextmanager
async def started(
    module: str, *options: str, switch: Path = Path(os.devnull), fronts: int = 0
) -> AsyncIterator[Process]:
    """A server that is ready, of `python -m module options`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *options),
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TEST_FRONTS": str(fronts)},
    )
    assert process.stderr is not None
    served = Process(process, 0, switch)
    reading: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(WAIT_S):
            while not served.logged("ready"):
                line = await process.stderr.readline()
                assert line, "the server ended before it was ready"
                served.log.append(parsed(line))
                if served.log[-1]["message"] == "listening":
                    served.port = served.log[-1]["port"]
        reading = asyncio.create_task(_read(process.stderr, served.log))
        yield served
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            await process.wait()
        if reading:
            await reading


async def listen(served: Process, *question: str) -> dict[str, Any]:
    """What a client in another process hears: see `tests.server.listener`."""
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.server.listener", served.ws, *question),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    out, _ = await client.communicate()
    heard: dict[str, Any] = json.loads(out)
    return heard


async def _read(stream: asyncio.StreamReader, log: list[dict[str, Any]]) -> None:
    while line := await stream.readline():
        log.append(parsed(line))


def parsed(line: bytes) -> dict[str, Any]:
    """A line of the log. Others, such as those of a traceback, count as errors."""
    try:
        record: dict[str, Any] = json.loads(line)
    except ValueError:
        text = line.decode(errors="replace").rstrip()
        return {"level": "error", "logger": "stderr", "message": text}
    return record
