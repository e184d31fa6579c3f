"""The process: sockets, TLS, signals. The first signal drains, the second ends at once."""

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
from mosslive.server.connections import Connection, Socket
from mosslive.server.server_state import ServerState
from mosslive.server.settings import ServerSettings, check_exposure

_SPARE = 256  # connections beyond those that do the work: health, metrics, refusals
_PING_S = 20.0  # a peer that does not answer for so long is gone
_log = logging.getLogger("mosslive.server")


class DrainingServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, server_state: ServerState) -> None:
        super().__init__(config)
        self._server_state = server_state
        self._draining: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None  # why loading failed

    @property
    def port(self) -> int:
        """Where it listens, once `started`."""
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port

    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        told = {"host": self.config.host, "port": self.port, "page": f"{self._at('http')}/"}
        _log.info("listening", extra=told)
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
        elif sys.stderr.isatty():  # elsewhere every line is for programs
            page, socket = self._at("http"), self._at("ws")
            print(
                f"mosslive: ready. Open {page}/ in a browser, or point a realtime client at "
                f"{socket}/v1/realtime. Ctrl-C ends it.",
                file=sys.stderr,
            )

    def _at(self, scheme: str) -> str:
        safe = "s" if self.config.ssl_certfile else ""
        return address(self.config.host, self.port, scheme + safe)


def make_server(
    settings: ServerSettings, load: Callable[[], Awaitable[Backend]] | None = None
) -> tuple[DrainingServer, ServerState]:
    """Refuses what must not be served; loads nothing yet."""
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
        http=Connection,
        ws=Socket,
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
    """Until a signal ends it."""
    logs.set_up(settings.log_level)
    server, server_state = make_server(settings)
    server.run()
    if server.failure:
        raise server.failure
    if not server_state.loaded:  # nothing else ends a thread that reads a large model
        logging.shutdown()
        os._exit(0)


async def _load_on_thread(settings: ServerSettings) -> Backend:
    """On a thread that nobody waits for at the end: a model may take minutes, a signal must not."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[Backend] = loop.create_future()

    def tell(what: Callable[[Any], None], value: object) -> None:
        if not made.done():
            what(value)

    def load() -> None:
        try:
            told = made.set_result, load_backend(settings)
        except BaseException as error:
            told = made.set_exception, error  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop is closed: the server has ended meanwhile
            loop.call_soon_threadsafe(tell, *told)

    threading.Thread(target=load, name="load", daemon=True).start()
    return await made
