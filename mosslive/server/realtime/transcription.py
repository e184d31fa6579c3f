"""Transcripts of the user's speech, made by the model, and sent as the model writes them.

A session of type transcription has one for every turn and nothing else; another session has them if
it asks for them and the server enables them. Each is made by a task of the session, parallel to the
conversation; the sound that waits for them is limited. Knows items;
`one_shot.transcription_events` knows how a turn is transcribed.
"""

from contextlib import aclosing

import numpy as np
import torch

from mosslive.codec import Sound
from mosslive.errors import MossliveError
from mosslive.server.api_errors import ApiError, as_api_error
from mosslive.server.one_shot import transcription_events, turn_of
from mosslive.server.realtime.formats import Samples
from mosslive.server.realtime.history_edits import drop
from mosslive.server.realtime.items import Item
from mosslive.server.realtime.server_events import transcription as events
from mosslive.server.realtime.session import RealtimeSession
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import TextDelta
from mosslive.talk.transcript import codes_of

_LEAST_S = 0.1  # of sound that the codec can encode
_MOST_WAITING = 64  # transcripts of a session


def require_replies(session: RealtimeSession, event_type: str) -> None:
    """Refuses an event that a session without responses does not have."""
    if not session.config.replies:
        raise ApiError(
            f"{event_type} is not part of a session of type transcription; allowed: "
            "session.update and input_audio_buffer events",
            "not_in_transcription_session",
            "type",
        )


def require_room(session: RealtimeSession) -> None:
    """Refuses a commit in a session of type transcription while too much waits to be transcribed:
    sound can come faster than it is written down. In other sessions the conversation goes on."""
    if not session.config.replies and _full(session):
        raise ApiError(
            f"input_audio_buffer.commit: {session.transcripts} turns with {session.waiting_s:.1f} s"
            f" of sound wait for their transcripts; allowed: less than {_MOST_WAITING} turns and"
            f" {_most_s(session):g} s; commit again after the next transcript",
            "too_many_transcripts",
        )


def transcribe(session: RealtimeSession, item: Item) -> None:
    """Starts the transcription of a spoken turn of the user."""
    config = session.config
    if not config.replies or (config.transcription and session.backend.transcripts):
        # The item may forget its sound before it is needed. A detected turn is not refused: beyond
        # the limit it is transcribed from the history.
        sound = [] if _full(session) else list(item.sound)
        session.transcripts += 1
        session.waiting_s += _seconds(item, sound)
        session.start(_transcribe(session, item, sound))


def _full(session: RealtimeSession) -> bool:
    return session.transcripts >= _MOST_WAITING or session.waiting_s >= _most_s(session)


def _most_s(session: RealtimeSession) -> float:
    settings = session.backend.settings
    return max(settings.max_sound_s, settings.max_turn_s)


def _seconds(item: Item, sound: list[Samples]) -> float:
    return sum(map(len, sound)) / item.rate_hz


async def _transcribe(session: RealtimeSession, item: Item, sound: list[Samples]) -> None:
    try:
        async with session.in_order:
            said = await _said(session, item, sound)  # waits for a reply; its captions go on
            async with session.transcribing:
                text = await _write(session, item, said) if said else ""
        item.content = [{"type": "input_audio", "transcript": text}]
        session.send(events.completed(item.id, text, item.sound_ms / 1000))
    except Exception as error:
        if not isinstance(error, MossliveError):
            session.log.error("a transcription failed", exc_info=error)
        session.send(events.failed(item.id, str(as_api_error(error))))
    finally:
        session.transcripts -= 1
        session.waiting_s -= _seconds(item, sound)
        if not session.config.replies:  # nobody answers the turn, and the context stays short
            session.edit(drop(item.turns, "user"))
        session.progressed()


async def _said(session: RealtimeSession, item: Item, sound: list[Samples]) -> HistoryTurn | None:
    """The turn of the history; or its sound, encoded again, if the history does not have it: it
    was too long for the context, or the user speaks again and it is not complete yet."""
    turns = await session.talk.settled()
    for one in turns:
        if one.turn in item.turns and one.role == "user":
            return one
    wave = np.concatenate([*sound, np.zeros(0, np.float32)])
    if item.samples < _LEAST_S * item.rate_hz:
        return None
    if not sound:
        raise ApiError("the sound of this turn is no longer kept", "sound_forgotten")
    return await turn_of(session.backend, "user", Sound(torch.from_numpy(wave), item.rate_hz))


async def _write(session: RealtimeSession, item: Item, said: HistoryTurn) -> str:
    text, codes = "", codes_of(session.backend.engine, said)
    async with aclosing(transcription_events(session.backend, codes)) as written:
        async for event in written:
            text = text + event.text if isinstance(event, TextDelta) else event.text
            if isinstance(event, TextDelta):
                session.send(events.delta(item.id, event.text))
    return text
