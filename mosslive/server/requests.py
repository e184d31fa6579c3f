"""What wraps every plain HTTP request: the gate, the size of its body, errors as JSON, counting.

Also answers browsers of allowed origins. Knows nothing of what endpoints do.
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
from mosslive.server.connections import cut
from mosslive.server.keys import Bearer
from mosslive.server.server_state import ServerState

# Open to everybody: they tell nothing of anybody. What is not below /v1 is the page.
_OPEN = ("/health", "/health/live", "/version")
_WANTED = "access-control-request-headers"
_GONE = 499  # the client left: nobody is told, it is counted
_BODY_S = 120.0  # for all of a body
_log = logging.getLogger("mosslive.http")


def bearer_of(request: Request) -> Bearer:
    bearer: Bearer = request.scope["state"]["bearer"]
    return bearer


def state_of(request: Request) -> ServerState:
    server_state: ServerState = request.app.state.server_state
    return server_state


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object of a request; no body is an empty one."""
    raw = read_json(await request.body() or b"{}", "body")
    if not isinstance(raw, dict):
        raise ApiError("the body is not a JSON object", "invalid_json")
    return raw


def error_response(api_error: ApiError) -> Response:
    body = {"error": error_body(api_error)}
    return JSONResponse(body, api_error.status, retry_headers(api_error))


class Streamed(StreamingResponse):
    """Ends what it was made from, however it ends: a reply holds a seat and pages, and cannot wait
    for the garbage collector."""

    def __init__(
        self, chunks: AsyncGenerator[str | bytes], source: AsyncGenerator[Any], kind: str
    ) -> None:
        super().__init__(chunks, media_type=kind)
        self._chunks, self._source = chunks, source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._source), aclosing(self._chunks):
            await super().__call__(scope, receive, send)


async def http_error(request: Request, error: Exception) -> Response:
    """What the framework refuses, as we do: no such path, a wrong method, half a form."""
    assert isinstance(error, HTTPException), "registered for no other"
    codes = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "invalid_request")
    answer = error_response(ApiError(error.detail, code, status=error.status_code))
    answer.headers.update(error.headers or {})
    return answer


class Wrapped:
    def __init__(self, app: ASGIApp, server_state: ServerState) -> None:
        self._app, self._server_state = app, server_state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        told: list[int] = []
        origin = request.headers.get("origin")
        allowed = origin if origin and self._server_state.access.allows_origin(origin) else None

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                told.append(message["status"])
                if allowed:
                    more = _cors(allowed, request.headers.get(_WANTED, ""))
                    message = {**message, "headers": [*message["headers"], *more]}
            try:
                async with asyncio.timeout(self._server_state.settings.send_timeout_s):
                    await send(message)
            except TimeoutError:
                cut(scope)
                raise ClientDisconnect from None

        try:
            if request.method == "OPTIONS" and allowed:
                await Response(status_code=204)(scope, receive, counted)
            else:
                self._admit(request)
                await self._app(scope, self._limited(request, receive), counted)
        except ClientDisconnect:
            told.insert(0, _GONE)
        except Exception as error:
            if told:  # too late for a status: the connection is cut, so that the client notices
                _log.error("a response broke off", exc_info=error)
                raise
            api_error = self._as_refusal(error)
            self._server_state.metrics.refused(api_error.code or "other")
            await error_response(api_error)(scope, receive, counted)
        finally:
            status = told[0] if told else _GONE
            path = _label(scope)
            self._server_state.metrics.requests.labels(path, str(status)).inc()
            _log.info("request", extra={"path": path, "status": status})

    def _admit(self, request: Request) -> None:
        path = request.url.path
        locked = path.startswith("/v1/") or (
            path == "/metrics" and self._server_state.settings.metrics_key
        )
        if locked and path not in _OPEN:
            bearer = self._server_state.access.admit(request.headers)
            request.scope.setdefault("state", {})["bearer"] = bearer

    def _limited(self, request: Request, receive: Receive) -> Receive:
        most = self._server_state.settings.max_upload_bytes
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > most:
            raise _too_large(most)
        came, whole = 0, False
        end = asyncio.get_running_loop().time() + _BODY_S

        async def limited() -> Message:
            nonlocal came, whole
            try:
                async with asyncio.timeout_at(None if whole else end):
                    message = await receive()
            except TimeoutError:
                raise ApiError("the body took too long", "body_too_slow", status=408) from None
            whole = not message.get("more_body", False)
            came += len(message.get("body", b""))
            if came > most:
                raise _too_large(most)
            return message

        return limited

    def _as_refusal(self, error: Exception) -> ApiError:
        if isinstance(error, MossliveError):
            return as_api_error(error)
        _log.error("a request failed", exc_info=error)
        return ApiError("internal error", "internal_error", kind="server_error", status=500)


def _too_large(most: int) -> ApiError:
    return ApiError(f"the body is longer than {most} bytes", "body_too_large", status=413)


def _cors(origin: str, wanted: str) -> list[tuple[bytes, bytes]]:
    """`wanted`: headers the page is going to send; libraries add some of their own."""
    return [
        (b"access-control-allow-origin", origin.encode()),
        (b"access-control-allow-headers", (wanted or "authorization, content-type").encode()),
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-expose-headers", b"location"),
        (b"vary", b"origin"),
    ]


def _label(scope: Scope) -> str:
    """The route, not the path: a label must not be a client's to choose."""
    route = scope.get("route")
    return str(getattr(route, "path", "")) or "other"
