"""Handler of `session.update`, the one event of this family that a client sends.

Runs on the event loop of the session. Does not know how fields are read and merged.
"""

from dataclasses import replace

from mosslive.server.api_errors import ApiError, Event
from mosslive.server.realtime import fields
from mosslive.server.realtime.client_events.input_audio_buffer import clear_input
from mosslive.server.realtime.config import SessionConfig, merged
from mosslive.server.realtime.history_edits import Edit, with_system
from mosslive.server.realtime.server_events import session as events
from mosslive.server.realtime.session import Handler, RealtimeSession


async def update(session: RealtimeSession, event: Event) -> None:
    raw = fields.record(event, "session")
    config = merged(session.config, raw, session.offer)
    # The connection fixes the model. Clients repeat it here, which must not fail.
    config = replace(config, model=session.config.model)
    if config.kind != session.config.kind and _has_begun(session):
        raise ApiError(
            f"the type of the session cannot change after its first turn; it is "
            f"{session.config.kind}",
            "cannot_update_session_type",
            "session.type",
        )
    if config.voice != session.config.voice and session.responses.voice_used:
        raise ApiError(
            "the voice cannot change after the first sound of the session",
            "cannot_update_voice",
            "session.audio.output.voice",
        )
    system: Edit | None = None
    if config.instructions != session.config.instructions:
        system = await with_system(session.backend.engine, config.instructions)
        session.catch_up()
    if _input_config(config) != _input_config(session.config) and (
        session.talk.listening or session.input.detached
    ):
        clear_input(session)  # one turn has one configuration
    session.apply(config, system)
    session.send(events.updated(session.document()))


def _has_begun(session: RealtimeSession) -> bool:
    return len(session.items) > 0 or session.busy or session.talk.listening


def _input_config(config: SessionConfig) -> object:
    return config.turn_detection, config.input_format


HANDLERS: dict[str, Handler] = {"session.update": update}
