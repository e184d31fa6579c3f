"""`conversation.item.input_audio_transcription.*`: transcripts of the user's speech."""

from mosslive.server.api_errors import Event

_FAMILY = "conversation.item.input_audio_transcription"


def delta(item_id: str, text: str) -> Event:
    return {
        "type": f"{_FAMILY}.delta",
        "item_id": item_id,
        "content_index": 0,
        "delta": text,
    }


def completed(item_id: str, transcript: str, seconds: float) -> Event:
    """`seconds`: of audio, which is the usage."""
    return {
        "type": f"{_FAMILY}.completed",
        "item_id": item_id,
        "content_index": 0,
        "transcript": transcript,
        "usage": {"type": "duration", "seconds": seconds},
    }


def failed(item_id: str, message: str) -> Event:
    return {
        "type": f"{_FAMILY}.failed",
        "item_id": item_id,
        "content_index": 0,
        "error": {"type": "server_error", "code": "transcription_failed", "message": message},
    }
