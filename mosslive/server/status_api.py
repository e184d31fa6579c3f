"""What operators and clients ask about the server itself: health, metrics, version, models."""

from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mosslive.server.requests import state_of
from mosslive.version import __version__


async def health(request: Request) -> Response:
    """Readiness: 200 when conversations can begin. 503 while loading and when shutting down, while
    a part does not work, and while not even one reply could begin."""
    server_state = state_of(request)
    if server_state.state != "ready":
        return JSONResponse({"status": server_state.state}, 503)
    if problem := server_state.problem():
        return JSONResponse({"status": "failed", "reason": problem.message}, 503)
    if reason := server_state.backend.engine.unavailable_reason():
        return JSONResponse({"status": "overloaded", "reason": reason}, 503)
    return JSONResponse({"status": "ok"})


async def alive(request: Request) -> Response:
    """Liveness: 503 if a part cannot recover by itself, so that the process must be restarted."""
    problem = state_of(request).problem()
    if problem and problem.final:
        return JSONResponse({"status": "failed", "reason": problem.message}, 503)
    return JSONResponse({"status": "alive"})


async def metrics(request: Request) -> Response:
    return Response(state_of(request).metrics.page(), media_type=CONTENT_TYPE_LATEST)


async def version(request: Request) -> Response:
    return JSONResponse({"version": __version__})


async def models(request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [_model(state_of(request).settings.name)]})


async def model(request: Request) -> Response:
    """A single model is served, under whatever name it is asked for."""
    return JSONResponse(_model(request.path_params["name"]))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "mosslive"}
