"""`conversation.item.*`: items a client makes, reads, cuts short and takes out."""

from typing import Any, cast

import torch

from mosslive.codec import Sound
from mosslive.config import SECONDS_PER_CODE
from mosslive.rows import Role
from mosslive.server.api_errors import ApiError, Event, new_id
from mosslive.server.realtime import fields
from mosslive.server.realtime.history_edits import cut_reply, drop, move
from mosslive.server.realtime.input_buffer import read_sound
from mosslive.server.realtime.items import Item
from mosslive.server.realtime.session import Handler, RealtimeSession

_KINDS = ("message", "function_call", "function_call_output")
_ROLES = ("system", "user", "assistant")
_MOST_ID = 256  # characters
_MOST_PARTS = 64  # of one item
_MOST_UNHEARD = 8  # items with sound that the codec has not come to yet
# Clients count what they have played in their own way; so much beyond the end is the end.
_PAST_THE_END_MS = 1000


async def create(session: RealtimeSession, event: Event) -> None:
    raw = fields.record(event, "item")
    after = fields.text(event, "previous_item_id", default=None)
    session.items.place(after)  # refused before the item is read
    if len(session.items) >= session.backend.settings.max_items:
        raise ApiError(f"{len(session.items)} items are the most", "too_many_items")
    item, words = await read_item(session, raw)
    sounds = sum(isinstance(one, Sound) for one in words)
    if session.unheard + sounds > _MOST_UNHEARD:
        raise ApiError(
            f"{_MOST_UNHEARD} items wait to be heard; send more later", "too_many_sounds"
        )
    session.catch_up()  # reading long sound takes a while
    place = session.items.place(after)
    behind = list(session.items)[:place]
    at_the_end = place == len(session.items)
    session.items.check_new(item.id)
    for one in words:
        item.turns.append(session.talk.say(role_of(item), one))
    if sounds:
        session.start(_hear(session, sounds))
    session.add_item(item, place)
    if words and not at_the_end:
        numbers = [(turn, one.role) for one in behind for turn in one.turns]
        session.edit(move(item.turns, numbers))


async def _hear(session: RealtimeSession, sounds: int) -> None:
    session.unheard += sounds
    try:
        await session.talk.settled()
    finally:
        session.unheard -= sounds


async def retrieve(session: RealtimeSession, event: Event) -> None:
    item = session.items.get(fields.text(event, "item_id"), "item_retrieve_invalid_item_id")
    config = session.config
    form = config.input_format if item.role == "user" else config.output_format
    session.send({"type": "conversation.item.retrieved", "item": await item.with_audio(form)})


async def truncate(session: RealtimeSession, event: Event) -> None:
    item = session.items.get(fields.text(event, "item_id"), "item_truncate_invalid_item_id")
    fields.whole(event, "content_index", 0, 0)
    end_ms = fields.whole(event, "audio_end_ms", 0, 1 << 40)
    if not item.spoken:
        raise ApiError(
            "only sound of the assistant can be truncated", "unsupported_content_type", "item_id"
        )
    if end_ms > item.sound_ms + _PAST_THE_END_MS:
        raise ApiError(
            f"Audio content of {item.sound_ms}ms is already shorter than {end_ms}ms",
            None,
            "audio_end_ms",
        )
    if end_ms < item.sound_ms or item.status == "in_progress":
        item.cut(end_ms)
        codes = int(end_ms / (1000 * SECONDS_PER_CODE) + 0.5)
        for turn in item.turns:
            session.edit(cut_reply(session.backend.engine, turn, codes))
    session.send(
        {
            "type": "conversation.item.truncated",
            "item_id": item.id,
            "content_index": 0,
            "audio_end_ms": end_ms,
        }
    )


async def delete(session: RealtimeSession, event: Event) -> None:
    item = session.items.get(fields.text(event, "item_id"), "item_delete_invalid_item_id")
    session.items.remove(item)
    if item.turns:
        session.edit(drop(item.turns, item.role))
    session.send({"type": "conversation.item.deleted", "item_id": item.id})


async def read_item(
    session: RealtimeSession, raw: dict[str, Any]
) -> tuple[Item, list[str | Sound]]:
    """An item as a client describes it, and what the model is told of it."""
    kind = fields.choice(raw.get("type"), _KINDS, "item.type")
    item_id = fields.text(raw, "id", "item.", None) or new_id("item")
    if len(item_id) > _MOST_ID:
        raise fields.bad("item.id", item_id, f"at most {_MOST_ID} characters")
    if kind != "message":  # kept for the client's own books; the model has no tools
        names = ("call_id", "name", "arguments", "output")
        most = session.backend.settings.max_text_chars
        extra = {name: raw[name] for name in names if isinstance(raw.get(name), str)}
        for name, text in extra.items():
            _check_length(text, most, f"item.{name}")
        return Item(kind=kind, role=None, id=item_id, extra=extra), []
    role = fields.choice(raw.get("role"), _ROLES, "item.role")
    item = Item(role=role, id=item_id)
    words: list[str | Sound] = []
    parts = fields.many(raw, "content", "item.")
    if len(parts) > _MOST_PARTS:
        raise ApiError(f"item.content: {_MOST_PARTS} parts at most", param="item.content")
    for number, part in enumerate(parts):
        where = f"item.content[{number}]."
        if not isinstance(part, dict):
            raise fields.bad(where[:-1], part, "an object with a type")
        words.append(await _read_part(session, item, part, where))
    if not words:
        raise fields.bad("item.content", [], "one part or more")
    _check_length(item.text, session.backend.settings.max_text_chars, "item.content")
    return item, [one for one in words if one != ""]


async def _read_part(
    session: RealtimeSession, item: Item, part: dict[str, Any], where: str
) -> str | Sound:
    kind = part.get("type")
    if kind == "input_audio" and item.role == "user":
        return await _read_sound(session, item, part, where)
    # Beta clients and chat histories call text by several names.
    written = {"input_text": "text", "output_text": "text", "text": "text"}
    written["output_audio"] = "transcript"
    if (
        not isinstance(kind, str)
        or kind not in written
        or (kind == "output_audio" and item.role != "assistant")
    ):
        raise ApiError(
            f"{where}type is {str(kind)[:40]!r}; allowed: input_text, input_audio (user), "
            f"output_text (assistant)",
            "unsupported_content_type",
            f"{where}type",
        )
    text: str = fields.text(part, written[kind], where)
    name = "output_text" if item.role == "assistant" else "input_text"
    item.content.append({"type": name, "text": text})
    return text


async def _read_sound(
    session: RealtimeSession, item: Item, part: dict[str, Any], where: str
) -> str | Sound:
    form = session.config.input_format
    wave, _ = await read_sound(fields.text(part, "audio", where), form, f"{where}audio")
    most_s = session.backend.settings.max_turn_s
    if not len(wave) or len(wave) > most_s * form.rate_hz:
        raise ApiError(f"{where}audio: allowed: sound, {most_s:g} s at most", "invalid_audio")
    transcript = fields.text(part, "transcript", where, None)
    item.content.append({"type": "input_audio", "transcript": transcript})
    item.rate_hz = form.rate_hz
    item.hear(wave)
    return Sound(torch.from_numpy(wave), form.rate_hz)


def _check_length(text: str, most: int, where: str) -> None:
    if len(text) > most:
        raise fields.bad(where, text, f"at most {most} characters")


def role_of(item: Item) -> Role:
    assert item.role in _ROLES, "read_item has checked it"
    return cast(Role, item.role)


HANDLERS: dict[str, Handler] = {
    "conversation.item.create": create,
    "conversation.item.retrieve": retrieve,
    "conversation.item.truncate": truncate,
    "conversation.item.delete": delete,
}
