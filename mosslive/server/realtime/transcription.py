"""What the user said, in the model's own words, where the session and the server want it.

Runs beside the conversation and is told whenever it is ready. Knows items; how a turn is read, the
model knows.
"""

from mosslive.errors import MossliveError
from mosslive.server.one_shot import transcribe_turn
from mosslive.server.realtime.items import Item
from mosslive.server.realtime.session import RealtimeSession

_NAME = "conversation.item.input_audio_transcription"


def transcribe(session: RealtimeSession, item: Item) -> None:
    """Begins; the item is a spoken turn of the user."""
    if session.config.transcription and session.backend.transcripts:
        session.start(_transcribe(session, item))


async def _transcribe(session: RealtimeSession, item: Item) -> None:
    place = {"item_id": item.id, "content_index": 0}
    try:
        turns = await session.talk.settled()
        said = [one for one in turns if one.turn in item.turns and one.role == "user"]
        text = await transcribe_turn(session.backend, said[0]) if said else ""
    except MossliveError as error:
        failed = {"type": "server_error", "code": "transcription_failed", "message": str(error)}
        session.send({"type": f"{_NAME}.failed", **place, "error": failed})
        return
    item.content = [{"type": "input_audio", "transcript": text}]
    usage = {"type": "duration", "seconds": item.sound_ms / 1000}
    session.send({"type": f"{_NAME}.completed", **place, "transcript": text, "usage": usage})
