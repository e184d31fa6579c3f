"""Responses below `/v1` to unknown paths (404), wrong methods (405) and GET of a WebSocket (426).

The message names the requested path and the allowed methods, so a typing error in a URL is easy to
find. Runs on the event loop. Knows the list of routes; does not know what they do.
"""

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, WebSocketRoute

from mosslive.server.api_errors import ApiError
from mosslive.server.requests import error_response

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_LONGEST = 80  # characters of the path that a message repeats


def not_found(routes: Sequence[BaseRoute]) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint to try after `routes`; later additions to that list are ignored."""
    before = tuple(routes)

    async def answer(request: Request) -> Response:
        path, method = request.url.path[:_LONGEST], request.method
        if _is_socket(before, request) and method == "GET":
            api_error = ApiError(
                f"{path} is a WebSocket endpoint; connect to it with ws:// or wss://, "
                "or POST an SDP offer to /v1/realtime/calls for WebRTC",
                "upgrade_required",
                status=426,
            )
            return _with(error_response(api_error), upgrade="websocket")
        allowed = _methods(before, request)
        if not allowed:
            message = f"{path} does not exist; docs/server.md lists the endpoints"
            return error_response(ApiError(message, "not_found", status=404))
        names = ", ".join(allowed)
        message = f"{path} does not allow {method}; allowed: {names}"
        api_error = ApiError(message, "method_not_allowed", status=405)
        return _with(error_response(api_error), allow=names)

    return answer


def _methods(routes: Sequence[BaseRoute], request: Request) -> list[str]:
    found: set[str] = set()
    for route in routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is Match.PARTIAL:
            found |= route.methods or set()
    return sorted(found)


def _is_socket(routes: Sequence[BaseRoute], request: Request) -> bool:
    as_socket = {**request.scope, "type": "websocket"}
    return any(
        isinstance(route, WebSocketRoute) and route.matches(as_socket)[0] is Match.FULL
        for route in routes
    )


def _with(response: Response, **headers: str) -> Response:
    response.headers.update(headers)
    return response
