"""Client events of the Realtime protocol, as a front reads them: sound is decoded from base64.

Only `input_audio_buffer.append` is converted; everything else, valid or not, goes to the core as it
came, so that the core alone decides about errors. Runs on the event loop of a front.
"""

from typing import Any

from starlette.types import Message

from mosslive.server.api_errors import ApiError, read_json
from mosslive.server.realtime.beta_events import TRANSCRIPTION_UPDATE
from mosslive.server.realtime.input_buffer import decode_base64

# A beta client updates a session of type transcription by an event of its own.
UPDATES = ("session.update", TRANSCRIPTION_UPDATE)
_APPEND = "input_audio_buffer.append"


async def with_event(message: Message) -> tuple[Message, bool]:
    """A frame with text: appended sound becomes an `event` with bytes. True: it is an
    update of the session, which the core will answer."""
    try:
        event = read_json(message["text"], "frame")
        if not _is_append(event):
            return message, isinstance(event, dict) and event.get("type") in UPDATES
        sound = await decode_base64(event["audio"])
    except (ApiError, ValueError):
        return message, False
    plain: dict[str, Any] = {"type": _APPEND, "audio": sound, "speech": None}
    if isinstance(event.get("event_id"), str):
        plain["event_id"] = event["event_id"]
    return {"type": message["type"], "event": plain}, False


def _is_append(event: object) -> bool:
    return (
        isinstance(event, dict)
        and event.get("type") == _APPEND
        and isinstance(event.get("audio"), str)
    )
