"""Joins paths and schemas to the document at `/openapi.json`. Pure, for every thread.

Knows whether this server needs a key; everything else is the same on every server.
"""

import re
from typing import Any

from mosslive.server.openapi.paths import PATHS
from mosslive.server.openapi.schemas import SCHEMAS, ref
from mosslive.version import __version__

_ABOUT = (
    "The HTTP endpoints of a mosslive server. Live conversations run over WebSocket or WebRTC with "
    "the events of the OpenAI Realtime API, which OpenAPI cannot describe."
)


def document(needs_key: bool, metrics_key: bool = False) -> dict[str, Any]:
    """`needs_key`: paths below /v1 need one. `metrics_key`: so does /metrics."""
    paths: dict[str, Any] = {}
    for path, operations in PATHS.items():
        keyed = path.startswith("/v1/") or (metrics_key and path == "/metrics")
        security: list[dict[str, list[str]]] = [{"key": []}] if needs_key and keyed else []
        paths[path] = {
            method: operation | {"operationId": _name(method, path), "security": security}
            for method, operation in operations.items()
        }
    error = {"application/json": {"schema": ref("Error")}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "mosslive", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "responses": {"Error": {"description": "What is wrong, and where", "content": error}},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _name(method: str, path: str) -> str:
    return "_".join([method, *re.findall(r"\w+", path)])
