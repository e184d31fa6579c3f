"""`/health`, `/metrics`, `/version` and `/v1/models`: the state of the server itself.

Runs on the event loop and answers at once. Does not know sessions or conversations.
"""

from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mosslive.config.folders import is_bundled
from mosslive.server.api_errors import ApiError
from mosslive.server.requests import state_of
from mosslive.server.server_state import ServerState
from mosslive.version import __version__


async def health(request: Request) -> Response:
    """Readiness: 200 if conversations can start. 503 while loading and draining, while a part does
    not work, and while not even one reply could start."""
    server_state = state_of(request)
    if server_state.state != "ready":
        return JSONResponse({"status": server_state.state}, 503)
    if problem := server_state.problem():
        return JSONResponse({"status": "failed", "reason": problem.message}, 503)
    if reason := server_state.backend.engine.unavailable_reason():
        return JSONResponse({"status": "overloaded", "reason": reason}, 503)
    held = server_state.capacity()
    capacity = {"capacity": held.document()} if held else {}
    return JSONResponse({"status": "ok"} | capacity | _full(server_state))


def _full(server_state: ServerState) -> dict[str, str]:
    """Why no further session can start now, for browsers: they cannot read why a WebSocket was
    refused. A full server is ready all the same."""
    try:
        with server_state.slots.take(""):
            return {}
    except ApiError as api_error:
        return {"full": str(api_error)}


async def alive(request: Request) -> Response:
    """Liveness: 503 if a part cannot recover, so the process must be restarted."""
    problem = state_of(request).problem()
    if problem and problem.final:
        return JSONResponse({"status": "failed", "reason": problem.message}, 503)
    return JSONResponse({"status": "alive"})


async def metrics(request: Request) -> Response:
    return Response(state_of(request).metrics.page(), media_type=CONTENT_TYPE_LATEST)


async def version(request: Request) -> Response:
    """`bundled`: the server serves the model that ships with it."""
    bundled = is_bundled(state_of(request).settings.model)
    return JSONResponse({"version": __version__, "bundled": bundled})


async def models(request: Request) -> Response:
    server_state = state_of(request)
    return JSONResponse({"object": "list", "data": [_model(server_state, None)]})


async def model(request: Request) -> Response:
    """The one served model, under any requested name."""
    return JSONResponse(_model(state_of(request), request.path_params["name"]))


def _model(server_state: ServerState, name: str | None) -> dict[str, Any]:
    """`capabilities` is ours, and absent while the model is loaded."""
    model = {
        "id": name or server_state.settings.name,
        "object": "model",
        "created": 0,
        "owned_by": "mosslive",
    }
    if server_state.loaded:
        model["capabilities"] = server_state.backend.offered()
    return model
