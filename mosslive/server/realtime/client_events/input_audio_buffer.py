"""Handlers of `input_audio_buffer.*`: the user's sound, and where a turn ends without detection.

Runs on the event loop of the session. Does not know how turns are detected: `Talk` does that.
"""

import asyncio

import torch

from mosslive.codec import Sound
from mosslive.server.api_errors import ApiError, Event
from mosslive.server.realtime import fields
from mosslive.server.realtime.config import MOST_IDLE_MS
from mosslive.server.realtime.formats import Samples
from mosslive.server.realtime.input_buffer import read_base64
from mosslive.server.realtime.items import Item
from mosslive.server.realtime.server_events import input_audio_buffer as events
from mosslive.server.realtime.session import Handler, RealtimeSession
from mosslive.server.realtime.transcription import require_room, transcribe
from mosslive.talk.vad import Speech

# Kept outside a turn: prefix padding, events that are not sent yet, and the longest idle timeout.
_PAST_S = 8.0 + MOST_IDLE_MS / 1000
_LEAST_S = 0.1  # of sound that the codec can encode


async def append(session: RealtimeSession, event: Event) -> None:
    sound, speech = event.get("audio"), None
    if not isinstance(sound, bytes):
        sound = await read_base64(fields.text(event, "audio"), "audio")
    elif event["speech"]:  # a front has decoded the sound, and has run the VAD
        speech = Speech(*event["speech"])
    await append_samples(session, await session.input.buffer.read(sound), speech)


async def append_samples(
    session: RealtimeSession, wave: Samples, speech: Speech | None = None
) -> None:
    """`wave`: sound of the user, at the rate of the input buffer. `speech`: as in
    `Talk.push_audio`."""
    buffer = session.input.buffer
    manual = session.config.turn_detection is None
    most_s = session.backend.settings.max_turn_s
    if manual and buffer.kept_s + len(wave) / buffer.rate_hz > most_s:
        raise ApiError(
            f"the input audio buffer has at most {most_s:g} s; commit or clear it first",
            "input_audio_buffer_full",
        )
    for piece in buffer.pieces(wave):
        buffer.keep(piece)
        if not manual:
            buffer.trim(most_s if session.talk.listening else _PAST_S)
        if not session.input.detached:
            session.talk.push_audio(piece, buffer.rate_hz, speech)
            speech = Speech(speech.stream, ()) if speech else None  # all came with the first piece
        if len(wave) > len(piece):
            await asyncio.sleep(0)  # other sessions run


async def commit(session: RealtimeSession, event: Event) -> None:
    require_room(session)
    if session.input.detached:
        _add_sound(session, session.input.new_item(), session.input.take_detached())
    elif not session.talk.commit():
        raise ApiError(
            "the input audio buffer is empty, nothing was committed",
            "input_audio_buffer_commit_empty",
        )


async def clear(session: RealtimeSession, event: Event) -> None:
    clear_input(session)


def clear_input(session: RealtimeSession) -> None:
    """Forgets the turn being heard."""
    session.talk.clear()
    session.input.clear()
    session.send(events.cleared())


def detach(session: RealtimeSession) -> None:
    """Keeps the turn being heard out of the conversation until it is committed."""
    session.talk.clear()
    session.input.detach()


def commit_silence(session: RealtimeSession, idle_s: float) -> None:
    """Commits the last `idle_s` as a turn. Turn detection has found no speech there; the model may
    hear more."""
    buffer, item = session.input.buffer, session.input.new_item()
    end_s = buffer.came_s
    start_s = max(0.0, end_s - idle_s)
    session.send(events.timeout_triggered(item.id, round(1000 * start_s), round(1000 * end_s)))
    _add_sound(session, item, buffer.between(start_s, end_s))


def commit_item(session: RealtimeSession, item: Item) -> None:
    """Adds the item of a turn of the user that is over."""
    session.send(events.committed(item.id, session.items.last_id))
    session.add_item(item)
    transcribe(session, item)


def _add_sound(session: RealtimeSession, item: Item, wave: Samples) -> None:
    item.add_sound(wave)
    if len(wave) >= _LEAST_S * item.rate_hz:
        item.turns = [session.talk.say("user", Sound(torch.from_numpy(wave), item.rate_hz))]
    commit_item(session, item)


HANDLERS: dict[str, Handler] = {
    "input_audio_buffer.append": append,
    "input_audio_buffer.commit": commit,
    "input_audio_buffer.clear": clear,
}
