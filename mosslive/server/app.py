"""Builds the ASGI application: the list of routes, the middleware and the shutdown hook.

Knows the endpoints by name only. Everything here runs once, before the server listens.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute

from mosslive.server import (
    api_docs,
    chat,
    secrets_api,
    speech,
    status_api,
    transcriptions,
    voices_api,
)
from mosslive.server.not_found import METHODS, not_found
from mosslive.server.requests import HttpMiddleware, http_error
from mosslive.server.server_state import ServerState
from mosslive.server.web_page import WebPage
from mosslive.server.webrtc import endpoints
from mosslive.server.websocket import realtime


def make_app(server_state: ServerState) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await app.state.calls.close()
        await server_state.close()

    routes: list[BaseRoute] = [
        WebSocketRoute("/v1/realtime", realtime),
        Route("/v1/realtime", endpoints.create, methods=["POST"]),  # the beta path
        Route("/v1/realtime/calls", endpoints.create, methods=["POST"]),
        Route("/v1/realtime/calls/{call}/hangup", endpoints.hang_up, methods=["POST"]),
        Route("/v1/realtime/ice_servers", endpoints.ice_servers),
        Route("/v1/realtime/client_secrets", secrets_api.client_secrets, methods=["POST"]),
        Route("/v1/realtime/sessions", secrets_api.beta_sessions, methods=["POST"]),
        Route(
            "/v1/realtime/transcription_sessions",
            secrets_api.beta_transcription_sessions,
            methods=["POST"],
        ),
        Route("/v1/chat/completions", chat.completions, methods=["POST"]),
        Route("/v1/audio/speech", speech.speech, methods=["POST"]),
        Route("/v1/audio/transcriptions", transcriptions.transcription, methods=["POST"]),
        Route("/v1/voices", voices_api.listing),
        Route("/v1/voices", voices_api.upload, methods=["POST"]),
        Route("/v1/voices/{name}", voices_api.removal, methods=["DELETE"]),
        Route("/v1/audio/voices", voices_api.listing),
        Route("/v1/models", status_api.models),
        Route("/v1/models/{name:path}", status_api.model),
        Route("/health", status_api.health),
        Route("/health/live", status_api.alive),
        Route("/metrics", status_api.metrics),
        Route("/version", status_api.version),
        Route("/openapi.json", api_docs.openapi),
        Route("/docs", api_docs.docs),
    ]
    # Otherwise the page's static files would answer unknown API paths with a bare 404.
    routes.append(Route("/v1/{rest:path}", not_found(routes), methods=METHODS))
    routes.append(Mount("/docs", api_docs.DocsFiles()))
    routes.append(Mount("/", WebPage()))
    app = Starlette(
        routes=routes, lifespan=lifespan, exception_handlers={HTTPException: http_error}
    )
    app.state.server_state = server_state
    app.state.calls = endpoints.Calls(server_state)
    app.add_middleware(HttpMiddleware, server_state=server_state)
    return app
