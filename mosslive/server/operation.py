"""What operators and clients ask about the server itself: health, metrics, version, models."""

from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mosslive.server.requests import house_of
from mosslive.version import __version__


async def health(request: Request) -> Response:
    """200 when conversations can begin; 503 while loading, and when shutting down."""
    state = house_of(request).state
    if state == "ready":
        return JSONResponse({"status": "ok"})
    return JSONResponse({"status": state}, 503)


async def alive(request: Request) -> Response:
    return JSONResponse({"status": "alive"})


async def metrics(request: Request) -> Response:
    return Response(house_of(request).metrics.page(), media_type=CONTENT_TYPE_LATEST)


async def version(request: Request) -> Response:
    return JSONResponse({"version": __version__})


async def models(request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [_model(house_of(request).settings.name)]})


async def model(request: Request) -> Response:
    """A single model is served, under whatever name it is asked for."""
    return JSONResponse(_model(request.path_params["name"]))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "mosslive"}
