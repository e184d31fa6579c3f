"""`session.update`: the one event of this family a client sends."""

from dataclasses import replace

from mosslive.server.api_errors import ApiError, Event
from mosslive.server.realtime import fields
from mosslive.server.realtime.buffer_events import forget
from mosslive.server.realtime.config import SessionConfig, merged
from mosslive.server.realtime.history_edits import Edit, with_system
from mosslive.server.realtime.session import Handler, RealtimeSession


async def update(session: RealtimeSession, event: Event) -> None:
    raw = fields.record(event, "session")
    config = merged(session.config, raw, session.offer)
    # The model is that of the connection; clients repeat it, and must not fail for it.
    config = replace(config, model=session.config.model)
    if config.voice != session.config.voice and session.spoke:
        raise ApiError(
            "the voice cannot change once sound was produced",
            "cannot_update_voice",
            "session.audio.output.voice",
        )
    system: Edit | None = None
    if config.instructions != session.config.instructions:
        system = await with_system(session.backend.engine, config.instructions)
        session.catch_up()
    if _hearing(config) != _hearing(session.config) and (
        session.talk.listening or session.detached
    ):
        forget(session)  # one rule from the beginning of a turn to its end
    session.apply(config, system)
    session.send({"type": "session.updated", "session": session.document()})


def _hearing(config: SessionConfig) -> object:
    return config.turn_detection, config.input_format


HANDLERS: dict[str, Handler] = {"session.update": update}
