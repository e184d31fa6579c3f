"""Transcripts of the user's speech, made by the model if the session and the server enable them.

Each transcript is made by a task of the session, parallel to the conversation, and sent when it is
ready. Knows items; `one_shot.transcribe_turn` knows how a turn is transcribed.
"""

from mosslive.errors import MossliveError
from mosslive.server.api_errors import as_api_error
from mosslive.server.one_shot import transcribe_turn
from mosslive.server.realtime.items import Item
from mosslive.server.realtime.server_events import transcription as events
from mosslive.server.realtime.session import RealtimeSession


def transcribe(session: RealtimeSession, item: Item) -> None:
    """Starts the transcription of a spoken turn of the user."""
    if session.config.transcription and session.backend.transcripts:
        session.start(_transcribe(session, item))


async def _transcribe(session: RealtimeSession, item: Item) -> None:
    try:
        turns = await session.talk.settled()
        said = [one for one in turns if one.turn in item.turns and one.role == "user"]
        # One at a time, because each needs pages beyond the session's share.
        async with session.transcribing:
            text = await transcribe_turn(session.backend, said[0]) if said else ""
    except Exception as error:
        if not isinstance(error, MossliveError):
            session.log.error("a transcription failed", exc_info=error)
        session.send(events.failed(item.id, str(as_api_error(error))))
        return
    item.content = [{"type": "input_audio", "transcript": text}]
    session.send(events.completed(item.id, text, item.sound_ms / 1000))
