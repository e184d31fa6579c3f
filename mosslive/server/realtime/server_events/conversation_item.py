"""`conversation.item.*`: changes to the list of items.

`item` is an item's document, `Item.document`. Transcripts of the input are in `transcription`.
"""

from typing import Any

from mosslive.server.api_errors import Event


def added(item: dict[str, Any], previous_item_id: str | None) -> Event:
    return {
        "type": "conversation.item.added",
        "item": item,
        "previous_item_id": previous_item_id,
    }


def done(item: dict[str, Any], previous_item_id: str | None) -> Event:
    return {
        "type": "conversation.item.done",
        "item": item,
        "previous_item_id": previous_item_id,
    }


def retrieved(item: dict[str, Any]) -> Event:
    """`item`: with its audio."""
    return {"type": "conversation.item.retrieved", "item": item}


def truncated(item_id: str, audio_end_ms: int) -> Event:
    return {
        "type": "conversation.item.truncated",
        "item_id": item_id,
        "content_index": 0,
        "audio_end_ms": audio_end_ms,
    }


def deleted(item_id: str) -> Event:
    return {"type": "conversation.item.deleted", "item_id": item_id}
