"""What wraps every plain HTTP request: the gate, the size of its body, errors as JSON, counting.

Also answers browsers of allowed origins. Knows nothing of what endpoints do.
"""

import json
import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mosslive.errors import MossliveError
from mosslive.server.house import House
from mosslive.server.keys import Bearer
from mosslive.server.wire import Refusal, as_refusal, error_body

# Open to everybody: they tell nothing of anybody. What is not below /v1 is the page.
_OPEN = ("/health", "/health/live", "/version")
_log = logging.getLogger("mosslive.http")


def bearer_of(request: Request) -> Bearer:
    bearer: Bearer = request.scope["state"]["bearer"]
    return bearer


def house_of(request: Request) -> House:
    house: House = request.app.state.house
    return house


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object of a request."""
    try:
        raw = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise Refusal("the body is not JSON", "invalid_json") from None
    if not isinstance(raw, dict):
        raise Refusal("the body is not a JSON object", "invalid_json")
    return raw


def refusal_response(refusal: Refusal) -> Response:
    return JSONResponse({"error": error_body(refusal)}, refusal.status)


class Wrapped:
    def __init__(self, app: ASGIApp, house: House) -> None:
        self._app, self._house = app, house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        told: list[int] = []
        origin = request.headers.get("origin")
        allowed = origin if origin and self._house.gate.allows_origin(origin) else None

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                told.append(message["status"])
                if allowed:
                    message = {**message, "headers": [*message["headers"], *_cors(allowed)]}
            await send(message)

        try:
            if request.method == "OPTIONS" and allowed:
                await Response(status_code=204)(scope, receive, counted)
            else:
                self._admit(request)
                await self._app(scope, self._limited(request, receive), counted)
        except Exception as error:
            if told:  # too late for a status: the connection is cut, so that the client notices
                _log.error("a response broke off", exc_info=error)
                raise
            refusal = self._as_refusal(error)
            self._house.metrics.refused(refusal.code or "other")
            await refusal_response(refusal)(scope, receive, counted)
        finally:
            status = told[0] if told else 499
            path = _label(scope)
            self._house.metrics.requests.labels(path, str(status)).inc()
            _log.info("request", extra={"path": path, "status": status})

    def _admit(self, request: Request) -> None:
        path = request.url.path
        locked = path.startswith("/v1/") or (
            path == "/metrics" and self._house.settings.metrics_key
        )
        if locked and path not in _OPEN:
            bearer = self._house.gate.admit(request.headers)
            request.scope.setdefault("state", {})["bearer"] = bearer

    def _limited(self, request: Request, receive: Receive) -> Receive:
        most = self._house.settings.max_upload_bytes
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > most:
            raise _too_large(most)
        came = 0

        async def limited() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > most:
                raise _too_large(most)
            return message

        return limited

    def _as_refusal(self, error: Exception) -> Refusal:
        if isinstance(error, MossliveError):
            return as_refusal(error)
        _log.error("a request failed", exc_info=error)
        return Refusal("internal error", "internal_error", kind="server_error", status=500)


def _too_large(most: int) -> Refusal:
    return Refusal(f"the body is longer than {most} bytes", "body_too_large", status=413)


def _cors(origin: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"access-control-allow-origin", origin.encode()),
        (b"access-control-allow-headers", b"authorization, content-type"),
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-expose-headers", b"location"),
        (b"vary", b"origin"),
    ]


def _label(scope: Scope) -> str:
    """The route, not the path: a label must not be a client's to choose."""
    route = scope.get("route")
    return str(getattr(route, "path", "")) or "other"
