"""`input_audio_buffer.*`: the user's sound, and where a turn ends when the client says so."""

import asyncio

import torch

from mosslive.codec import Sound
from mosslive.server.api_errors import ApiError, Event
from mosslive.server.realtime import fields
from mosslive.server.realtime.config import MOST_IDLE_MS
from mosslive.server.realtime.formats import Samples
from mosslive.server.realtime.items import Item
from mosslive.server.realtime.session import Handler, RealtimeSession
from mosslive.server.realtime.transcription import transcribe

# Kept beyond the turn in progress: prefix padding, events still on their way, and a silence as long
# as it can be before it is answered.
_PAST_S = 8.0 + MOST_IDLE_MS / 1000
_LEAST_S = 0.1  # of sound that can be heard at all


async def append(session: RealtimeSession, event: Event) -> None:
    await hear(session, await session.buffer.read(fields.text(event, "audio")))


async def hear(session: RealtimeSession, wave: Samples) -> None:
    """Sound of the user, at the rate of the input buffer."""
    buffer = session.buffer
    manual = session.config.turn_detection is None
    most_s = session.backend.settings.max_turn_s
    if manual and buffer.kept_s + len(wave) / buffer.rate_hz > most_s:
        raise ApiError(
            f"a turn has {most_s:g} s at most; commit or clear first", "input_audio_buffer_full"
        )
    for piece in buffer.pieces(wave):
        buffer.keep(piece)
        if not manual:
            buffer.trim(most_s if session.talk.listening else _PAST_S)
        if not session.detached:
            session.talk.push_audio(piece, buffer.rate_hz)
        if len(wave) > len(piece):
            await asyncio.sleep(0)  # others have their turn


async def commit(session: RealtimeSession, event: Event) -> None:
    if session.detached:
        _commit_detached(session)
        return
    if not session.talk.commit():
        raise ApiError(
            "the input audio buffer is empty, nothing was committed",
            "input_audio_buffer_commit_empty",
        )


async def clear(session: RealtimeSession, event: Event) -> None:
    forget(session)


def forget(session: RealtimeSession) -> None:
    """The turn being heard was never said."""
    session.talk.clear()
    session.buffer.forget()
    session.detached = False
    session.send({"type": "input_audio_buffer.cleared"})


def detach(session: RealtimeSession) -> None:
    """The turn being heard is not part of the conversation before it is committed."""
    session.talk.clear()
    session.detached = True


def commit_silence(session: RealtimeSession, idle_s: float) -> None:
    """The last `idle_s`, in which turn detection has heard nobody, are a turn: perhaps the model
    hears more."""
    buffer, item = session.buffer, _spoken_item(session)
    end_s = buffer.came_s
    start_s = max(0.0, end_s - idle_s)
    session.send(
        {
            "type": "input_audio_buffer.timeout_triggered",
            "item_id": item.id,
            "audio_start_ms": round(1000 * start_s),
            "audio_end_ms": round(1000 * end_s),
        }
    )
    _say(session, item, buffer.between(start_s, end_s))


def _commit_detached(session: RealtimeSession) -> None:
    item, wave = _spoken_item(session), session.buffer.take()
    session.detached = False
    _say(session, item, wave)


def _spoken_item(session: RealtimeSession) -> Item:
    content = [{"type": "input_audio", "transcript": None}]
    return Item(content=content, rate_hz=session.buffer.rate_hz)


def _say(session: RealtimeSession, item: Item, wave: Samples) -> None:
    item.hear(wave)
    if len(wave) >= _LEAST_S * item.rate_hz:
        item.turns = [session.talk.say("user", Sound(torch.from_numpy(wave), item.rate_hz))]
    told(session, item)


def told(session: RealtimeSession, item: Item) -> None:
    """A turn of the user is over, and is an item now."""
    session.send(
        {
            "type": "input_audio_buffer.committed",
            "item_id": item.id,
            "previous_item_id": session.items.last_id,
        }
    )
    session.add_item(item)
    transcribe(session, item)


HANDLERS: dict[str, Handler] = {
    "input_audio_buffer.append": append,
    "input_audio_buffer.commit": commit,
    "input_audio_buffer.clear": clear,
}
