"""Middleware of every HTTP request: access check, body limits, errors as JSON, metrics and CORS.

Also the helpers that endpoints share. Runs on the event loop, in the task of the request. WebSocket
handshakes pass through unchanged. Does not know what endpoints do.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mosslive.errors import MossliveError
from mosslive.server.api_errors import ApiError, as_api_error, error_body, read_json, retry_headers
from mosslive.server.connections import abort_connection
from mosslive.server.keys import Bearer
from mosslive.server.server_state import ServerState

_WANTED = "access-control-request-headers"
_GONE = 499  # status in log and metrics if the client disconnects; it is not sent
_BODY_S = 120.0  # within which the whole body must arrive
_log = logging.getLogger("mosslive.http")


def bearer_of(request: Request) -> Bearer:
    bearer: Bearer = request.scope["state"]["bearer"]
    return bearer


def state_of(request: Request) -> ServerState:
    server_state: ServerState = request.app.state.server_state
    return server_state


async def body_of(request: Request) -> dict[str, Any]:
    """The request body as a JSON object; an empty body is an empty object."""
    raw = read_json(await request.body() or b"{}", "body")
    if not isinstance(raw, dict):
        raise ApiError("the request body is not a JSON object", "invalid_json")
    return raw


def error_response(api_error: ApiError) -> Response:
    body = {"error": error_body(api_error)}
    return JSONResponse(body, api_error.status, retry_headers(api_error))


class ClosingStream(StreamingResponse):
    """A streaming response that closes its source however it ends: a reply holds a slot and pages,
    and must not keep them until garbage collection."""

    def __init__(
        self, chunks: AsyncGenerator[str | bytes], source: AsyncGenerator[Any], kind: str
    ) -> None:
        super().__init__(chunks, media_type=kind)
        self._chunks, self._source = chunks, source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._source), aclosing(self._chunks):
            await super().__call__(scope, receive, send)


async def http_error(request: Request, error: Exception) -> Response:
    """Converts an error of the framework (unknown path, wrong method, broken form) to our JSON."""
    assert isinstance(error, HTTPException), "the handler is registered for HTTPException only"
    codes = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "invalid_request")
    answer = error_response(ApiError(error.detail, code, status=error.status_code))
    answer.headers.update(error.headers or {})
    return answer


class HttpMiddleware:
    def __init__(self, app: ASGIApp, server_state: ServerState) -> None:
        self._app, self._server_state = app, server_state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        statuses: list[int] = []  # of the response, once it has started
        origin = request.headers.get("origin")
        allowed = origin if origin and self._server_state.access.allows_origin(origin) else None

        async def counted_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                if allowed:
                    more = _cors(allowed, request.headers.get(_WANTED, ""))
                    message = {**message, "headers": [*message["headers"], *more]}
            try:
                async with asyncio.timeout(self._server_state.settings.send_timeout_s):
                    await send(message)
            except TimeoutError:
                abort_connection(scope)
                raise ClientDisconnect from None

        try:
            if request.method == "OPTIONS" and allowed:
                await Response(status_code=204)(scope, receive, counted_send)
            else:
                self._admit(request)
                await self._app(scope, self._limited(request, receive), counted_send)
        except ClientDisconnect:
            statuses.insert(0, _GONE)
        except Exception as error:
            if statuses:  # too late for another status: uvicorn closes the connection
                _log.error("response failed after it had started", exc_info=error)
                raise
            api_error = self._as_api_error(error)
            self._server_state.metrics.refused(api_error.code or "other")
            await error_response(api_error)(scope, receive, counted_send)
        finally:
            status = statuses[0] if statuses else _GONE
            path = _label(scope)
            self._server_state.metrics.requests.labels(path, str(status)).inc()
            # Pages in a call ask for the health every 1.5 s.
            level = logging.DEBUG if path.startswith("/health") else logging.INFO
            _log.log(level, "request", extra={"path": path, "status": status})

    def _admit(self, request: Request) -> None:
        """Paths outside `/v1` are public: health, version, the page; metrics without a key."""
        path = request.url.path
        needs_key = path.startswith("/v1/") or (
            path == "/metrics" and self._server_state.settings.metrics_key
        )
        if needs_key:
            bearer = self._server_state.access.admit(request.headers)
            request.scope.setdefault("state", {})["bearer"] = bearer

    def _limited(self, request: Request, receive: Receive) -> Receive:
        most = self._server_state.settings.max_upload_bytes
        stated = request.headers.get("content-length", "0")
        if stated.isdecimal() and int(stated) > most:
            raise _too_large(most)
        received, complete = 0, False
        end = asyncio.get_running_loop().time() + _BODY_S

        async def limited() -> Message:
            nonlocal received, complete
            try:
                async with asyncio.timeout_at(None if complete else end):
                    message = await receive()
            except TimeoutError:
                message_text = f"the request body did not arrive within {_BODY_S:g} s"
                raise ApiError(message_text, "body_too_slow", status=408) from None
            complete = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > most:
                raise _too_large(most)
            return message

        return limited

    def _as_api_error(self, error: Exception) -> ApiError:
        if not isinstance(error, MossliveError):
            _log.error("request failed", exc_info=error)
        return as_api_error(error)


def _too_large(most: int) -> ApiError:
    return ApiError(
        f"the request body is longer than {most} bytes, the maximum", "body_too_large", status=413
    )


def _cors(origin: str, wanted: str) -> list[tuple[bytes, bytes]]:
    """`wanted`: the headers that the page wants to send; client libraries add their own."""
    return [
        (b"access-control-allow-origin", origin.encode()),
        (b"access-control-allow-headers", (wanted or "authorization, content-type").encode()),
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-expose-headers", b"location"),
        (b"vary", b"origin"),
    ]


def _label(scope: Scope) -> str:
    """The route instead of the path: clients must not choose label values."""
    route = scope.get("route")
    return str(getattr(route, "path", "")) or "other"
