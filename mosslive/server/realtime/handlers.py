"""All client events and who handles them: one table, made of the families' own."""

from mosslive.server.realtime import (
    buffer_events,
    conversation_events,
    response_events,
    session_events,
)
from mosslive.server.realtime.session import Handler

HANDLERS: dict[str, Handler] = {
    **session_events.HANDLERS,
    **buffer_events.HANDLERS,
    **conversation_events.HANDLERS,
    **response_events.HANDLERS,
}
