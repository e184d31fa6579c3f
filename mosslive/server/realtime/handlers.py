"""The handler of every client event: the tables of all event families in one."""

from mosslive.server.realtime.client_events import (
    conversation_item,
    input_audio_buffer,
    response,
    session,
)
from mosslive.server.realtime.session import Handler

HANDLERS: dict[str, Handler] = {
    **session.HANDLERS,
    **input_audio_buffer.HANDLERS,
    **conversation_item.HANDLERS,
    **response.HANDLERS,
}
