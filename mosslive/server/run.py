"""Runs the server process: listening socket, TLS, model loading, signals.

The event loop runs on the main thread; the model is loaded on the daemon thread `load`. The first
SIGTERM or SIGINT drains, the second exits at once. Does not know the endpoints.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from mosslive.engine.read import pick_device
from mosslive.server import logs
from mosslive.server.address import address, check_address, check_certificate
from mosslive.server.app import make_app
from mosslive.server.backend import Backend, load_backend
from mosslive.server.front.count import front_count
from mosslive.server.http_config import HttpSettings, http_config
from mosslive.server.last_words import end_process
from mosslive.server.server_state import ServerState
from mosslive.server.settings import ServerSettings, check_exposure
from mosslive.talk.host_threads import collecting_later_objects, short_thread_switches

if TYPE_CHECKING:
    from mosslive.server.front.supervisor import Fronts

_log = logging.getLogger("mosslive.server")


class DrainingServer(uvicorn.Server):
    """Listens first and loads the model afterwards; drains on the first signal."""

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, fronts: "Fronts | None" = None
    ) -> None:
        """`fronts`: hold the connections; None: this process does."""
        super().__init__(config)
        self._server_state, self.fronts = server_state, fronts
        self._draining: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None  # why loading failed

    @property
    def port(self) -> int:
        """The listening port; valid once `started`."""
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port

    async def startup(self, sockets: object = None) -> None:
        if self.fronts:
            await self._start_fronts(self.fronts)
        else:
            await super().startup()
        if self.should_exit:
            return
        loop = asyncio.get_running_loop()
        self._server_state.on_device_lost = partial(end_process, self._server_state, loop)
        where = {"host": self.config.host, "port": self.port, "page": f"{self._url('http')}/"}
        _log.info("listening", extra=where)
        self._loading = asyncio.get_running_loop().create_task(self._server_state.open())
        self._loading.add_done_callback(self._loaded)

    async def _start_fronts(self, fronts: "Fronts") -> None:
        """Binds the address as uvicorn does, and leaves the connections to the fronts."""
        await self.lifespan.startup()
        bound = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, self.config.host, self.config.port, start_serving=False
        )
        self.servers = [bound]
        fronts.start([socket.socket(fileno=os.dup(one.fileno())) for one in bound.sockets])
        self.started = True

    async def shutdown(self, sockets: object = None) -> None:
        if self.fronts:
            await self.fronts.stop(lambda: self.force_exit)
        await super().shutdown()

    def fail(self, error: BaseException) -> None:
        """Ends the server; `serve` raises this error."""
        self.failure = error
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is None and self.started:
            asyncio.get_running_loop().call_soon_threadsafe(self.begin_drain)
        else:
            self.should_exit = True
            self.force_exit = sig == signal.SIGINT

    def begin_drain(self) -> None:
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        await self._server_state.drain()
        self.should_exit = True

    def _loaded(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        if error := task.exception():
            _log.error("loading failed: %s", error)
            self.fail(error)
        elif self._for_people():
            page, socket = self._url("http"), self._url("ws")
            if held := self._server_state.capacity():
                most = self._server_state.settings.max_sessions
                print(
                    f"mosslive: {held.sentence()}; max_sessions is {most}.",
                    file=sys.stderr,
                )
            print(
                f"mosslive: ready. Open {page}/ in a browser, or connect a Realtime client to "
                f"{socket}/v1/realtime. Press Ctrl-C to stop.",
                file=sys.stderr,
            )

    def _for_people(self) -> bool:
        """Otherwise programs read standard error: JSON lines only."""
        settings = self._server_state.settings
        return logs.log_settings(settings.log_level, settings.log_format).form == "text"

    def _url(self, scheme: str) -> str:
        tls = "s" if self.config.ssl_certfile else ""
        return address(self.config.host, self.port, scheme + tls)


def check_start(settings: ServerSettings) -> None:
    """Raises `MossliveError` if the server cannot listen as the settings ask."""
    check_exposure(settings)
    check_certificate(settings.ssl_certfile, settings.ssl_keyfile)
    check_address(settings.host, settings.port)


def make_server(
    settings: ServerSettings, load: Callable[[], Awaitable[Backend]] | None = None
) -> tuple[DrainingServer, ServerState]:
    """Checks the settings and builds the server. Does not load the model or listen yet."""
    check_start(settings)
    settings = replace(settings, device=pick_device(settings.device))
    server_state = ServerState(settings, load or (lambda: _load_on_thread(settings)))
    app = make_app(server_state)
    http_settings = HttpSettings(
        settings.ssl_certfile,
        settings.ssl_keyfile,
        settings.max_event_bytes,
        settings.max_sessions + settings.max_requests,
    )
    config = http_config(app, http_settings, settings.host, settings.port)
    server = DrainingServer(config, server_state)
    if count := front_count(settings):
        from mosslive.server.front.supervisor import Fronts  # needs pyzmq

        restarts = server_state.metrics.front_restarts
        log = logs.log_settings(settings.log_level, settings.log_format)
        server.fronts = Fronts(app, count, http_settings, log, restarts.inc, server.fail)
    return server, server_state


def serve(
    settings: ServerSettings,
    prepare: Callable[[ServerSettings], ServerSettings] = lambda settings: settings,
) -> None:
    """Runs the server until a signal ends it. Raises the error if the model cannot be loaded.
    `prepare`: may download and build what the settings name, and returns those to serve with; runs
    once the log is set up and the address is known to be free."""
    logs.set_up(logs.log_settings(settings.log_level, settings.log_format))
    check_start(settings)
    settings = prepare(settings)
    with ExitStack() as until, short_thread_switches():
        server, server_state = make_server(settings, lambda: _load_for_good(settings, until))
        server.run()
    if server.failure:
        raise server.failure
    if not server_state.loaded:  # the load thread may still read a large model: do not wait
        logging.shutdown()
        os._exit(0)


async def _load_for_good(settings: ServerSettings, until: ExitStack) -> Backend:
    """For a process that only serves, `until` it ends."""
    backend = await _load_on_thread(settings)
    until.enter_context(collecting_later_objects())
    return backend


async def _load_on_thread(settings: ServerSettings) -> Backend:
    """Loads on a daemon thread: loading may take minutes, and a signal must not wait for it."""
    loop = asyncio.get_running_loop()
    loaded: asyncio.Future[Backend] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], value: object) -> None:
        if not loaded.done():
            set_outcome(value)

    def load() -> None:
        try:
            outcome = loaded.set_result, load_backend(settings)
        except BaseException as error:
            outcome = loaded.set_exception, error  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop is closed: the server has ended meanwhile
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=load, name="load", daemon=True).start()
    return await loaded
