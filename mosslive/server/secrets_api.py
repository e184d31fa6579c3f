"""`POST /v1/realtime/client_secrets`, and beta's `sessions` and `transcription_sessions`: ephemeral
keys.

A client uses its permanent key to get a key for a browser, with the configuration of the session
that the browser will open. Runs on the event loop. Does not know how keys are stored (`keys.py`).
"""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mosslive.server.api_errors import ApiError, new_id
from mosslive.server.keys import Bearer
from mosslive.server.realtime import fields, talk_config
from mosslive.server.realtime.beta_events import session_from_beta, session_to_beta
from mosslive.server.realtime.config import first_config, merged
from mosslive.server.requests import bearer_of, body_of, state_of
from mosslive.server.server_state import ServerState

_MOST_SESSION = 1 << 16  # bytes of the session's configuration, stored until the key expires
_LEAST_S, _MOST_S, _DEFAULT_S = 10, 7200, 600


async def client_secrets(request: Request) -> Response:
    raw = await body_of(request)
    server_state, bearer = state_of(request), bearer_of(request)
    session = fields.record(raw, "session", default={})
    shown = _shown(server_state, bearer, session)
    key, expires_at = _issue(server_state, bearer, raw, session)
    return JSONResponse({"value": key, "expires_at": expires_at, "session": shown})


async def beta_sessions(request: Request) -> Response:
    raw = await body_of(request)
    return _beta_answer(request, raw, session_from_beta(raw))


async def beta_transcription_sessions(request: Request) -> Response:
    raw = await body_of(request)
    return _beta_answer(request, raw, session_from_beta(raw) | {"type": "transcription"})


def _beta_answer(request: Request, raw: dict[str, Any], session: dict[str, Any]) -> Response:
    server_state, bearer = state_of(request), bearer_of(request)
    shown = session_to_beta(_shown(server_state, bearer, session))
    secret = fields.record(raw, "client_secret", default={})
    key, expires_at = _issue(server_state, bearer, secret, session)
    return JSONResponse(shown | {"client_secret": {"value": key, "expires_at": expires_at}})


def _issue(
    server_state: ServerState, bearer: Bearer, raw: dict[str, Any], session: dict[str, Any]
) -> tuple[str, int]:
    bearer.require_permanent_key()
    if len(json.dumps(session)) > _MOST_SESSION:
        message = f"session is longer than {_MOST_SESSION} bytes of JSON, the maximum"
        raise ApiError(message, "session_too_large", "session")
    after = fields.record(raw, "expires_after", default={})
    where = "expires_after."
    seconds = fields.whole(after, "seconds", _LEAST_S, _MOST_S, where, _DEFAULT_S)
    return server_state.keys.issue_ephemeral(bearer.owner, seconds, session or None)


def _shown(server_state: ServerState, bearer: Bearer, session: dict[str, Any]) -> dict[str, Any]:
    """The session as it would start. Raises `ApiError` if the configuration is invalid."""
    offer = talk_config.offer(server_state.backend, bearer.owner)
    model = fields.text(session, "model", "session.", server_state.settings.name)
    document = merged(first_config(offer, model), session, offer).document()
    return {"id": new_id("sess"), "expires_at": 0} | document
