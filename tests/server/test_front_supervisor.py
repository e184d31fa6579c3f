"""Front processes with a small application: shutdown, and fronts that fail in unusual ways."""

import asyncio
import errno
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from mosslive.errors import MossliveError
from mosslive.server.front.messages import Kind, pack
from mosslive.server.front.supervisor import Fronts
from mosslive.server.http_config import HttpSettings
from mosslive.server.logs import LogSettings
from tests.server.rig import WAIT_S, run, until

MODULE = "mosslive.server.front.supervisor"


class Running:
    """Fronts on a free port."""

    def __init__(self, app: ASGIApp, count: int) -> None:
        self.restarts = 0
        self.failures: list[MossliveError] = []
        http = HttpSettings(None, None, 1 << 20, 8)
        self.fronts = Fronts(app, count, http, LogSettings(), self._restarted, self.failures.append)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    def _restarted(self) -> None:
        self.restarts += 1

    async def ready(self, count: int) -> None:
        await until(lambda: len(self.fronts.ready) == count)

    async def get(self) -> str:
        async with httpx.AsyncClient(timeout=WAIT_S) as http:
            return (await http.get(self.url)).text


async def greet(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def running(count: int, app: ASGIApp = greet) -> AsyncIterator[Running]:
    made = Running(app, count)
    made.fronts.start([made.listening])
    try:
        yield made
    finally:
        await made.fronts.stop()


@pytest.mark.parametrize("forced", [False, True])
def test_shutdown_does_not_wait_for_handlers(forced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that goes on after all fronts have ended is cancelled when the time is over, or at
    once when the user asks again."""
    monkeypatch.setattr(f"{MODULE}.SHUTDOWN_S", 60 if forced else 0)
    outcomes: list[str] = []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        outcomes.append("began")
        try:
            await asyncio.sleep(WAIT_S)
        except asyncio.CancelledError:
            outcomes.append("cancelled")
            raise

    async def test() -> None:
        made, again = Running(slow, 1), asyncio.Event()
        made.fronts.start([made.listening])
        await made.ready(1)
        (pid,) = made.fronts.ready
        asking = asyncio.create_task(made.get())
        await until(lambda: bool(outcomes))
        began = time.monotonic()
        stopping = asyncio.create_task(made.fronts.stop(again.is_set))
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            await asking
        assert outcomes == ["began"]
        if forced:
            again.set()
        await stopping
        assert outcomes == ["began", "cancelled"]
        assert time.monotonic() - began < 20

    run(test())


def test_a_front_that_cannot_be_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as a front that has died: it is started again, and leaves no socket open."""
    spawn, pairs, made_pairs = asyncio.create_subprocess_exec, socket.socketpair, []
    failures = iter(range(2))

    async def scarce(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        if next(failures, None) is not None:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return await spawn(*arguments, **options)

    def pair() -> tuple[socket.socket, socket.socket]:
        made_pairs.append(pairs())
        return made_pairs[-1]

    async def test() -> None:
        monkeypatch.setattr("asyncio.create_subprocess_exec", scarce)
        monkeypatch.setattr("socket.socketpair", pair)
        async with running(1) as made:
            await made.ready(1)
            assert await made.get() == "hello"
            assert (made.restarts, made.failures) == (2, [])
            *failed, _ = made_pairs
            assert [one.fileno() for both in failed for one in both] == [-1] * 4

    run(test())


def test_a_front_that_hangs() -> None:
    """A front that does nothing is killed and replaced; the other one is not."""

    async def test() -> None:
        async with running(2) as made:
            await made.ready(2)
            hangs, works = made.fronts.ready
            os.kill(hangs, signal.SIGSTOP)
            await until(lambda: hangs not in made.fronts.ready)
            await made.ready(2)
            assert works in made.fronts.ready
            assert [await made.get() for _ in range(4)] == ["hello"] * 4
            assert made.restarts == 1

    run(test())


def test_a_front_that_sends_a_bad_message() -> None:
    """It is killed and replaced, and what else it has sent is dropped; the other one is not."""

    async def test() -> None:
        async with running(2) as made:
            await made.ready(2)
            bad, other = made.fronts.ready
            (name,) = [name for name, one in made.fronts._fronts.items() if one.process.pid == bad]
            for packet in ([], [Kind.CLOSED, "x"], [Kind.HELLO]):
                made.fronts._link._take(name, pack(packet))
            assert made.fronts.ready == [other]
            await made.ready(2)
            assert other in made.fronts.ready
            assert await made.get() == "hello"
            assert made.restarts == 1

    run(test())


class Scarce(socket.socket):
    """Cannot accept at first: too many files are open."""

    tries = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.tries += 1
        if self.tries == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_too_many_open_files() -> None:
    """The core tries again after a pause, instead of all the time, and the client is served."""

    async def test() -> None:
        made = Running(greet, 1)
        listening = made.listening = Scarce(fileno=made.listening.detach())
        made.fronts.start([listening])
        asking = asyncio.create_task(made.get())
        await until(lambda: listening.tries == 1)
        began = time.monotonic()
        assert await asking == "hello"
        assert time.monotonic() - began > 0.9
        assert listening.tries == 2
        await made.fronts.stop()

    run(test())
