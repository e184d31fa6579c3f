"""Starts the front processes, passes connections to them, and starts a front again that has died.

A connection goes to the front that holds the fewest. While no front is ready, connections wait in
the backlog of the listening socket. Each front has a control socket: connections travel over it as
file descriptors, and a front exits when it is closed, so no front outlives the core. A front that
sends nothing for some seconds hangs: it is killed. Runs on the event loop of the core. Does not
know what is sent over a connection.
"""

import asyncio
import logging
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import zmq
from starlette.types import ASGIApp

from mosslive.errors import MossliveError
from mosslive.server.child_processes import child_environment
from mosslive.server.front.dispatcher import Dispatcher
from mosslive.server.front.link import Link
from mosslive.server.front.messages import Kind, Packet
from mosslive.server.front.process import FrontSettings, core_address
from mosslive.server.http_config import SHUTDOWN_S, HttpSettings
from mosslive.server.logs import LogSettings

BACKLOG = 2048
_STABLE_S = 10.0  # a front that has lived so long is started again at once
_FIRST_WAIT_S, _MOST_WAIT_S = 0.1, 5.0
_ACCEPT_WAIT_S = 1.0  # after an error, e.g. too many open files
_CANCEL_S = 1.0  # for what the application does when it is cancelled
_TICK_S, _MOST_SILENT_TICKS = 1.0, 5  # a front sends something every second
_MOST_STARTS = 5  # of the first fronts, before the server gives up
_log = logging.getLogger("mosslive.fronts")


@dataclass
class _Front:
    name: bytes
    process: asyncio.subprocess.Process
    control: socket.socket
    ready: bool = False
    passed: int = 0  # connections that it got
    closed: int = 0  # of these, as it has reported
    silent_ticks: int = 0  # since its last message
    killed: bool = False

    def kill(self) -> None:
        self.ready, self.killed = False, True
        with suppress(ProcessLookupError):  # it has ended, which is not noticed yet
            self.process.kill()


class Fronts:
    def __init__(
        self,
        app: ASGIApp,
        count: int,
        settings: HttpSettings,
        log: LogSettings,
        on_restart: Callable[[], None],
        on_failure: Callable[[MossliveError], None],
    ) -> None:
        """`on_restart`: called for each front that has died. `on_failure`: no front can start."""
        self._count, self._settings, self._log = count, settings, log
        self._on_restart, self._on_failure = on_restart, on_failure
        self._dispatcher = Dispatcher(app, lambda packet, front: self._link.send(packet, front))
        self._fronts: dict[bytes, _Front] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._listening: Sequence[socket.socket] = ()
        self._accepting = False
        self._stopping = asyncio.Event()
        self._ever_ready = False

    @property
    def ready(self) -> list[int]:
        """The ids of the processes that take connections."""
        return [front.process.pid for front in self._fronts.values() if front.ready]

    def start(self, listening: Sequence[socket.socket]) -> None:
        """Listens and starts the fronts. Returns before they are ready: connections wait.
        `listening`: bound sockets; this object closes them."""
        self._listening = listening
        for one in listening:
            one.setblocking(False)
            one.listen(BACKLOG)
        self._folder = tempfile.mkdtemp(prefix="mosslive-")
        self._context = zmq.Context()
        router = self._context.socket(zmq.ROUTER)
        router.setsockopt(zmq.SNDHWM, 0)  # the windows of connections bound it
        router.setsockopt(zmq.RCVHWM, 0)
        router.bind(core_address(self._folder))
        self._link = Link(router, self._take, self._refuse)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep(number)) for number in range(self._count)]
        self._tasks.append(loop.create_task(self._watch()))

    async def stop(self, forced: Callable[[], bool] = lambda: False) -> None:
        """Accepts no more, lets fronts close their connections, and ends them and the application;
        at once when `forced`."""
        self._stopping.set()
        self._accept_if_ready()
        for one in self._listening:
            one.close()
        for front in self._fronts.values():
            if front.ready:
                self._link.send([Kind.STOP], front.name)
            else:
                front.kill()
        end, left = time.monotonic() + SHUTDOWN_S + 2, set(self._tasks)

        def in_time() -> bool:
            return time.monotonic() < end and not forced()

        while left and in_time():
            _, left = await asyncio.wait(left, timeout=0.1)
        if left:
            for front in self._fronts.values():
                front.kill()
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        while in_time() and not await self._dispatcher.ended(0.1):
            pass
        self._dispatcher.cancel()
        await self._dispatcher.ended(_CANCEL_S)
        self._link.close()
        self._context.term()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Processes.

    async def _keep(self, number: int) -> None:
        """Runs one front, again and again."""
        wait_s, generation = _FIRST_WAIT_S, 0
        while not self._stopping.is_set():
            generation += 1
            began = time.monotonic()
            name = f"front-{number}-{generation}"
            status = await self._run(name.encode())
            if self._stopping.is_set():
                return
            self._on_restart()
            lived_s = time.monotonic() - began
            wait_s = _FIRST_WAIT_S if lived_s > _STABLE_S else min(2 * wait_s, _MOST_WAIT_S)
            _log.error(
                "a front process has ended; its connections are lost",
                extra={"front": name, "status": status},
            )
            if not self._ever_ready and generation >= _MOST_STARTS:
                why = f"exit status {status}" if isinstance(status, int) else status
                self._on_failure(
                    MossliveError(
                        f"front processes cannot start ({why}, {generation} times); "
                        "the log says why; --fronts 0 serves without them"
                    )
                )
                return
            await self._pause(wait_s)

    async def _watch(self) -> None:
        """Kills fronts that hang. A front that starts may take long: it has to load libraries.
        Counts ticks, not seconds: after a pause of this process all fronts seem silent."""
        while not self._stopping.is_set():
            for front in [front for front in self._fronts.values() if front.ready]:
                front.silent_ticks += 1
                if front.silent_ticks > _MOST_SILENT_TICKS:
                    self._kill(front, "it hangs")
            await self._pause(_TICK_S)

    async def _pause(self, seconds: float) -> None:
        """Shorter if the server stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _kill(self, front: _Front, why: str) -> None:
        _log.error("a front process is killed: %s", why, extra={"front": front.name.decode()})
        front.kill()
        self._accept_if_ready()

    async def _run(self, name: bytes) -> int | str:
        """Runs a front until it ends → its exit status, or why it cannot be started."""
        try:
            front = await self._launch(name)
        except OSError as error:  # no memory, no process or no file descriptor is left
            return str(error)
        if self._stopping.is_set():
            front.kill()
        try:
            return await front.process.wait()
        finally:
            self._forget(front)

    async def _launch(self, name: bytes) -> _Front:
        ours, theirs = socket.socketpair()
        settings = FrontSettings(
            name.decode(), self._folder, theirs.fileno(), self._log, self._settings
        )
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "mosslive.server.front.process", settings.to_json()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=child_environment(),
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        front = self._fronts[name] = _Front(name, process, ours)
        return front

    def _forget(self, front: _Front) -> None:
        del self._fronts[front.name]
        front.control.close()
        self._dispatcher.lost(front.name)
        self._accept_if_ready()

    # Messages and connections.

    def _take(self, name: bytes, packet: Packet) -> None:
        front = self._fronts.get(name)
        if front is None or front.killed:
            return  # the last messages of a front that has died
        front.silent_ticks = 0
        if packet[0] == Kind.HELLO:
            front.ready = True
            _log.info("front started", extra={"front": name.decode(), "pid": front.process.pid})
            self._ever_ready = True
            self._accept_if_ready()
        elif packet[0] == Kind.CLOSED:
            front.closed = int(packet[1])
        else:
            self._dispatcher.take(name, packet)

    def _refuse(self, name: bytes) -> None:
        """This front has sent what no front should send."""
        if front := self._fronts.get(name):
            self._kill(front, "it sent a bad message")

    def _accept_if_ready(self) -> None:
        """Accepts connections while a front is ready and the server does not stop."""
        self._set_accepting(bool(self.ready) and not self._stopping.is_set())

    def _set_accepting(self, wanted: bool) -> None:
        if wanted == self._accepting:
            return
        self._accepting = wanted
        loop = asyncio.get_running_loop()
        for one in self._listening:
            if wanted:
                loop.add_reader(one, self._accept, one)
            else:
                loop.remove_reader(one)

    def _accept(self, listening: socket.socket) -> None:
        try:
            client, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:  # its client waits, and is reported again at once
            _log.error("connections cannot be accepted", exc_info=error)
            self._set_accepting(False)
            asyncio.get_running_loop().call_later(_ACCEPT_WAIT_S, self._accept_if_ready)
            return
        with client:  # the front has a copy
            ready = [front for front in self._fronts.values() if front.ready]
            for front in sorted(ready, key=lambda front: front.passed - front.closed):
                try:
                    socket.send_fds(front.control, [b"c"], [client.fileno()])
                except OSError:  # it is dying, or has not read for long
                    continue
                front.passed += 1
                return
