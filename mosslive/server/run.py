"""Runs the server process: listening socket, TLS, model loading, signals.

The event loop runs on the main thread; the model is loaded on the daemon thread `load`. The first
SIGTERM or SIGINT drains, the second exits at once. Does not know the endpoints.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn

from mosslive.server import logs
from mosslive.server.address import address, check_address, check_certificate
from mosslive.server.app import make_app
from mosslive.server.backend import Backend, load_backend
from mosslive.server.connections import HttpConnection, WebSocketConnection
from mosslive.server.server_state import ServerState
from mosslive.server.settings import ServerSettings, check_exposure
from mosslive.talk.host_threads import short_thread_switches

_SPARE = 256  # connections beyond sessions and requests: health, metrics, refused clients
_PING_S = 20.0  # interval of WebSocket pings, and timeout of their answers
_log = logging.getLogger("mosslive.server")


class DrainingServer(uvicorn.Server):
    """Listens first and loads the model afterwards; drains on the first signal."""

    def __init__(self, config: uvicorn.Config, server_state: ServerState) -> None:
        super().__init__(config)
        self._server_state = server_state
        self._draining: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None  # why loading failed

    @property
    def port(self) -> int:
        """The listening port; valid once `started`."""
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port

    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        where = {"host": self.config.host, "port": self.port, "page": f"{self._url('http')}/"}
        _log.info("listening", extra=where)
        self._loading = asyncio.get_running_loop().create_task(self._server_state.open())
        self._loading.add_done_callback(self._loaded)

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
            self.failure = error
            self.should_exit = True
        elif sys.stderr.isatty():  # otherwise programs read standard error: JSON lines only
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

    def _url(self, scheme: str) -> str:
        tls = "s" if self.config.ssl_certfile else ""
        return address(self.config.host, self.port, scheme + tls)


def make_server(
    settings: ServerSettings, load: Callable[[], Awaitable[Backend]] | None = None
) -> tuple[DrainingServer, ServerState]:
    """Checks the settings and builds the server. Does not load the model or listen yet."""
    check_exposure(settings)
    check_certificate(settings.ssl_certfile, settings.ssl_keyfile)
    check_address(settings.host, settings.port)

    server_state = ServerState(settings, load or (lambda: _load_on_thread(settings)))
    config = uvicorn.Config(
        make_app(server_state),
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
        http=HttpConnection,
        ws=WebSocketConnection,
        ws_max_size=settings.max_event_bytes,
        ws_ping_interval=_PING_S,
        ws_ping_timeout=_PING_S,
        timeout_graceful_shutdown=5,
        limit_concurrency=settings.max_sessions + settings.max_requests + _SPARE,
        access_log=False,
        log_config=None,
        server_header=False,
    )
    return DrainingServer(config, server_state), server_state


def serve(settings: ServerSettings) -> None:
    """Runs the server until a signal ends it. Raises the error if the model cannot be loaded."""
    logs.set_up(settings.log_level)
    server, server_state = make_server(settings)
    with short_thread_switches():
        server.run()
    if server.failure:
        raise server.failure
    if not server_state.loaded:  # the load thread may still read a large model: do not wait
        logging.shutdown()
        os._exit(0)


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
