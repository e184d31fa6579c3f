"""Reading an item that a client describes: checks, texts and sounds.

Runs on the event loop of the session; long sound is decoded on another thread. Changes nothing in
the session. Does not know what happens to the item.
"""

from typing import Any, cast

import torch

from mosslive.codec import Sound
from mosslive.rows import Role
from mosslive.server.api_errors import ApiError, new_id
from mosslive.server.realtime import fields
from mosslive.server.realtime.input_buffer import read_sound
from mosslive.server.realtime.items import Item
from mosslive.server.realtime.session import RealtimeSession

_KINDS = ("message", "function_call", "function_call_output")
# Clients read these fields of the items that they get, and fail without them.
_REQUIRED = {"function_call": ("name", "arguments"), "function_call_output": ("call_id", "output")}
_ROLES = ("system", "user", "assistant")
_MOST_ID = 256  # characters
_MOST_PARTS = 64  # of one item
# Content types with text, and the field that has it. Beta clients and chat histories use several.
_TEXT_FIELDS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "output_audio": "transcript",
}


async def read_item(
    session: RealtimeSession, raw: dict[str, Any]
) -> tuple[Item, list[str | Sound]]:
    """An item as a client describes it, and its texts and sounds for the model."""
    kind = fields.choice(raw.get("type"), _KINDS, "item.type")
    item_id = fields.text(raw, "id", "item.", None) or new_id("item")
    if len(item_id) > _MOST_ID:
        raise fields.bad("item.id", item_id, f"at most {_MOST_ID} characters")
    if kind != "message":  # kept for the client; the model has no tools
        names = ("call_id", "name", "arguments", "output")
        most = session.backend.settings.max_text_chars
        for name in _REQUIRED[kind]:
            fields.text(raw, name, "item.")
        extra = {name: raw[name] for name in names if isinstance(raw.get(name), str)}
        for name, text in extra.items():
            _check_length(text, most, f"item.{name}")
        return Item(kind=kind, role=None, id=item_id, extra=extra), []
    role = fields.choice(raw.get("role"), _ROLES, "item.role")
    item = Item(role=role, id=item_id)
    contents: list[str | Sound] = []
    parts = fields.many(raw, "content", "item.")
    if len(parts) > _MOST_PARTS:
        raise ApiError(
            f"item.content has {len(parts)} parts; allowed: at most {_MOST_PARTS}",
            param="item.content",
        )
    for number, part in enumerate(parts):
        where = f"item.content[{number}]."
        if not isinstance(part, dict):
            raise fields.bad(where[:-1], part, "an object with a type")
        contents.append(await _read_part(session, item, part, where))
    if not contents:
        raise fields.bad("item.content", [], "one part or more")
    _check_length(item.text, session.backend.settings.max_text_chars, "item.content")
    return item, [one for one in contents if one != ""]


def role_of(item: Item) -> Role:
    assert item.role in _ROLES, "read_item has checked it"
    return cast(Role, item.role)


async def _read_part(
    session: RealtimeSession, item: Item, part: dict[str, Any], where: str
) -> str | Sound:
    kind = part.get("type")
    if kind == "input_audio" and item.role == "user":
        return await _read_sound(session, item, part, where)
    if (
        not isinstance(kind, str)
        or kind not in _TEXT_FIELDS
        or (kind == "output_audio" and item.role != "assistant")
    ):
        raise ApiError(
            f"{where}type is {str(kind)[:40]!r}; allowed: input_text, input_audio (user), "
            f"output_text (assistant)",
            "unsupported_content_type",
            f"{where}type",
        )
    text: str = fields.text(part, _TEXT_FIELDS[kind], where)
    name = "output_text" if item.role == "assistant" else "input_text"
    item.content.append({"type": name, "text": text})
    return text


async def _read_sound(
    session: RealtimeSession, item: Item, part: dict[str, Any], where: str
) -> Sound:
    form = session.config.input_format
    wave, _ = await read_sound(fields.text(part, "audio", where), form, f"{where}audio")
    most_s = session.backend.settings.max_turn_s
    if not len(wave) or len(wave) > most_s * form.rate_hz:
        raise ApiError(
            f"{where}audio has {len(wave) / form.rate_hz:g} s; allowed: more than 0, at most "
            f"{most_s:g} s",
            "invalid_audio",
        )
    transcript = fields.text(part, "transcript", where, None)
    item.content.append({"type": "input_audio", "transcript": transcript})
    item.rate_hz = form.rate_hz
    item.add_sound(wave)
    return Sound(torch.from_numpy(wave), form.rate_hz)


def _check_length(text: str, most: int, where: str) -> None:
    if len(text) > most:
        raise fields.bad(where, text, f"at most {most} characters")
