"""`response.*`: a response, its output item and the content of the item.

A response has at most one output item, and an item one content part, so every index is 0.
`item` is an item's document, `Item.document`. `ResponseEvents` calls these functions in order.
"""

from typing import Any, Literal

from mosslive.server.api_errors import ApiError, Event
from mosslive.server.realtime.config import SessionConfig

Status = Literal["in_progress", "completed", "cancelled", "incomplete", "failed"]


def response_object(
    response_id: str,
    status: Status,
    config: SessionConfig,
    output: list[dict[str, Any]],
    conversation_id: str | None,
    metadata: dict[str, str] | None,
    status_details: dict[str, Any] | None = None,
    usage: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The `response` field of an event. `config`: in force for this response. `conversation_id`:
    None for a response outside the conversation."""
    tokens: int | str = "inf" if config.max_tokens is None else config.max_tokens
    return {
        "id": response_id,
        "object": "realtime.response",
        "status": status,
        "status_details": status_details,
        "output": output,
        "conversation_id": conversation_id,
        "output_modalities": [config.modality],
        "audio": {"output": {"format": config.output_format.document(), "voice": config.voice}},
        "max_output_tokens": tokens,
        "metadata": metadata,
        "usage": usage,
    }


def status_details(
    status: Status, reason: str | None, error: ApiError | None
) -> dict[str, Any] | None:
    """Why a response ended early. None: it did not."""
    if status in ("in_progress", "completed"):
        return None
    details: dict[str, Any] = {"type": status}
    if reason:
        details["reason"] = reason
    if error:
        details["error"] = {"type": error.kind, "code": error.code, "message": str(error)}
    return details


def created(response: dict[str, Any]) -> Event:
    return {"type": "response.created", "response": response}


def done(response: dict[str, Any]) -> Event:
    return {"type": "response.done", "response": response}


def output_item_added(response_id: str, item: dict[str, Any]) -> Event:
    return _of_response("response.output_item.added", response_id, item=item)


def output_item_done(response_id: str, item: dict[str, Any]) -> Event:
    return _of_response("response.output_item.done", response_id, item=item)


def content_part_added(response_id: str, item_id: str, part: dict[str, Any]) -> Event:
    return _of_item("response.content_part.added", response_id, item_id, part=part)


def content_part_done(response_id: str, item_id: str, part: dict[str, Any]) -> Event:
    return _of_item("response.content_part.done", response_id, item_id, part=part)


def output_audio_delta(response_id: str, item_id: str, audio: bytes) -> Event:
    """`audio`: in the output format of the response; base64 when the event is written."""
    return _of_item("response.output_audio.delta", response_id, item_id, delta=audio)


def output_audio_done(response_id: str, item_id: str) -> Event:
    return _of_item("response.output_audio.done", response_id, item_id)


def output_audio_transcript_delta(response_id: str, item_id: str, delta: str) -> Event:
    return _of_item("response.output_audio_transcript.delta", response_id, item_id, delta=delta)


def output_audio_transcript_done(response_id: str, item_id: str, transcript: str) -> Event:
    name = "response.output_audio_transcript.done"
    return _of_item(name, response_id, item_id, transcript=transcript)


def output_text_delta(response_id: str, item_id: str, delta: str) -> Event:
    return _of_item("response.output_text.delta", response_id, item_id, delta=delta)


def output_text_done(response_id: str, item_id: str, text: str) -> Event:
    return _of_item("response.output_text.done", response_id, item_id, text=text)


def _of_item(name: str, response_id: str, item_id: str, **fields: Any) -> Event:
    return _of_response(name, response_id, item_id=item_id, content_index=0, **fields)


def _of_response(name: str, response_id: str, **fields: Any) -> Event:
    return {"type": name, "response_id": response_id, "output_index": 0, **fields}
