"""The configuration of uvicorn: connections, TLS, pings and limits.

One place for the server's own process and for front processes. Does not know the application.
"""

from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from mosslive.server.connections import HttpConnection, WebSocketConnection

_SPARE = 256  # connections beyond sessions and requests: health, metrics, refused clients
_PING_S = 20.0  # interval of WebSocket pings, and timeout of their answers
SHUTDOWN_S = 5  # for responses in progress, after the server was told to exit


@dataclass(frozen=True)
class HttpSettings:
    """The settings that concern connections only. Contains no keys."""

    ssl_certfile: Path | None
    ssl_keyfile: Path | None
    max_event_bytes: int
    conversations: int  # sessions and requests at once


def http_config(
    app: ASGIApp, settings: HttpSettings, host: str = "127.0.0.1", port: int = 0
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
        http=HttpConnection,
        ws=WebSocketConnection,
        ws_max_size=settings.max_event_bytes,
        ws_ping_interval=_PING_S,
        ws_ping_timeout=_PING_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
        limit_concurrency=settings.conversations + _SPARE,
        access_log=False,
        log_config=None,
        server_header=False,
    )
