"""Handlers of `response.create` and `response.cancel`.

Runs on the event loop of the session. Replies with a context of their own are made in
`one_shot_response`; replies of the conversation are made by `Talk` and sent by `talk_events`.
"""

from dataclasses import replace
from typing import Any

from mosslive.server.api_errors import ApiError, Event
from mosslive.server.realtime import fields
from mosslive.server.realtime.client_events.input_audio_buffer import detach
from mosslive.server.realtime.config import SessionConfig, output_changes
from mosslive.server.realtime.one_shot_response import start_one_shot, start_out_of_band
from mosslive.server.realtime.response_state import Phase
from mosslive.server.realtime.session import Handler, RealtimeSession
from mosslive.server.realtime.transcription import require_replies

_MOST_METADATA = 16


async def create(session: RealtimeSession, event: Event) -> None:
    require_replies(session, "response.create")
    raw = fields.record(event, "response", default={})
    where = "response."
    config = replace(session.config, **output_changes(raw, session.offer, where))
    metadata = _metadata(raw)
    out_of_band = raw.get("conversation") == "none"
    if raw.get("conversation") not in (None, "auto", "none"):
        raise fields.bad("response.conversation", raw["conversation"], "auto or none")
    context = fields.many(raw, "input", where, None)
    if out_of_band:
        start_out_of_band(session, config, metadata, context)
        return
    if session.ending:
        await session.until(lambda: not session.ending)
        session.catch_up()
    if session.responses.phase is not Phase.NONE:
        raise ApiError(
            "the conversation has an active response; wait for its end, or cancel it",
            "conversation_already_has_active_response",
        )
    if context is not None or config.instructions != session.config.instructions:
        # This context is for one response only and stays out of the conversation; the output of
        # the response joins it.
        start_one_shot(session, config, metadata, context)
        return
    if session.talk.listening:
        if session.config.turn_detection is not None:
            raise ApiError(
                "the user is speaking; the response comes when the turn is over",
                "conversation_already_has_active_response",
            )
        detach(session)
    respond(session, config, metadata)


def respond(
    session: RealtimeSession, config: SessionConfig, metadata: dict[str, str] | None = None
) -> None:
    """Starts a reply of `Talk` to the conversation so far, and its response."""
    session.apply_edits()
    session.configure_talk(config)
    try:
        turn = session.talk.respond()
    finally:
        session.configure_talk(session.config)
    session.begin_response(turn, config, metadata)


async def cancel(session: RealtimeSession, event: Event) -> None:
    response_id = fields.text(event, "response_id", default=None)
    responses = session.responses
    if responses.cancel_task(response_id):
        return
    response = responses.active
    if responses.phase is Phase.EXPECTED and response_id is None:
        # The reply is on its way and has no response yet.
        response = session.begin_expected(responses.expected_turn)
    if response is None or response_id not in (None, response.id):
        raise ApiError(
            "Cancellation failed: no active response found", "response_cancel_not_active"
        )
    if responses.phase is Phase.ONE_SHOT:
        response.finish("cancelled", "client_cancelled")
        responses.end(response)
        responses.cancel_task(response.id)
    elif session.talk.cancel():
        responses.cancel_by_client()
        session.take_events()


def _metadata(raw: dict[str, Any]) -> dict[str, str] | None:
    given = fields.record(raw, "metadata", "response.", None)
    if given is None:
        return None
    pairs = all(isinstance(v, str) and len(k) <= 64 and len(v) <= 512 for k, v in given.items())
    if len(given) > _MOST_METADATA or not pairs:
        raise fields.bad("response.metadata", given, f"{_MOST_METADATA} pairs of short strings")
    return dict(given)


HANDLERS: dict[str, Handler] = {"response.create": create, "response.cancel": cancel}
