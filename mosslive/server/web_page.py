"""Serves the web page at `/`: the files in `page/`, with headers that restrict it to this server.

Runs on the event loop; Starlette reads the files on a worker thread. Does not know what the page
does.
"""

from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

FOLDER = Path(__file__).parent / "page"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "media-src 'self' blob: mediastream:",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",  # revalidated each time (304), so the page matches its server
}


class WebPage(StaticFiles):
    """Static files; refuses WebSocket handshakes."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER, html=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await super().__call__(scope, receive, send)
        else:
            await WebSocketClose()(scope, receive, send)

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response
