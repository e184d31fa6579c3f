"""Handlers of `conversation.item.*`: items that a client creates, reads, truncates and deletes.

Runs on the event loop of the session. Edits of the history wait while `Talk` replies
(`RealtimeSession.edit`).
"""

from contextlib import ExitStack

from mosslive.codec import Sound
from mosslive.config import SECONDS_PER_CODE
from mosslive.server.api_errors import ApiError, Event
from mosslive.server.realtime import fields
from mosslive.server.realtime.history_edits import drop, move, truncate_reply
from mosslive.server.realtime.item_input import read_item, role_of
from mosslive.server.realtime.server_events import conversation_item as events
from mosslive.server.realtime.session import Handler, RealtimeSession
from mosslive.server.realtime.transcription import require_replies

_MOST_ENCODING = 8  # sounds of created items that wait for the codec
# Clients count what they have played in their own way. Up to this far beyond the end is the end.
_PAST_THE_END_MS = 1000


async def create(session: RealtimeSession, event: Event) -> None:
    require_replies(session, "conversation.item.create")
    raw = fields.record(event, "item")
    after = fields.text(event, "previous_item_id", default=None)
    session.items.place(after)  # raises before the item is read
    if len(session.items) >= session.backend.settings.max_items:
        raise ApiError(
            f"the conversation has {len(session.items)} items, the maximum; delete items first",
            "too_many_items",
        )
    item, contents = await read_item(session, raw)
    sounds = sum(isinstance(one, Sound) for one in contents)
    if session.input.encoding + sounds > _MOST_ENCODING:
        raise ApiError(
            f"at most {_MOST_ENCODING} sounds of items can wait for the codec; send more later",
            "too_many_sounds",
        )
    session.catch_up()  # the conversation went on while long sound was decoded
    place = session.items.place(after)
    before = list(session.items)[:place]
    at_the_end = place == len(session.items)
    session.items.check_new(item.id)
    for one in contents:
        item.turns.append(session.talk.say(role_of(item), one))
    if sounds:
        counted = ExitStack()
        counted.enter_context(session.input.encodes(sounds))  # at once: more items may wait
        session.start(_count_encoding(session, counted, item.turns[-1]))
    session.add_item(item, place)
    if contents and not at_the_end:
        numbers = [(turn, one.role) for one in before for turn in one.turns]
        session.edit(move(item.turns, numbers))


async def _count_encoding(session: RealtimeSession, counted: ExitStack, last_turn: int) -> None:
    """Counts sounds until the last of them is part of the conversation."""
    with counted:
        await session.talk.stored(last_turn)


async def retrieve(session: RealtimeSession, event: Event) -> None:
    item = session.items.get(fields.text(event, "item_id"), "item_retrieve_invalid_item_id")
    config = session.config
    form = config.input_format if item.role == "user" else config.output_format
    session.send(events.retrieved(await item.with_audio(form)))


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
        item.truncate(end_ms)
        codes = int(end_ms / (1000 * SECONDS_PER_CODE) + 0.5)
        for turn in item.turns:
            session.edit(truncate_reply(session.backend.engine, turn, codes))
    session.send(events.truncated(item.id, end_ms))


async def delete(session: RealtimeSession, event: Event) -> None:
    item = session.items.get(fields.text(event, "item_id"), "item_delete_invalid_item_id")
    session.items.remove(item)
    if item.turns:
        session.edit(drop(item.turns, item.role))
    session.send(events.deleted(item.id))


HANDLERS: dict[str, Handler] = {
    "conversation.item.create": create,
    "conversation.item.retrieve": retrieve,
    "conversation.item.truncate": truncate,
    "conversation.item.delete": delete,
}
