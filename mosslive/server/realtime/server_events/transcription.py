"""`conversation.item.input_audio_transcription.*`: transcripts of the user's speech; and
`mosslive.transcript`, an extension of ours: those of a reply, while it is spoken."""

from mosslive.server.api_errors import Event

LIVE = "mosslive.transcript"  # sent to clients whose session `include` names it
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


def live(item_id: str, transcript: str, audio_ms: int) -> Event:
    """`transcript`: of the first `audio_ms` of the reply. Replaces the one before it."""
    return {"type": LIVE, "item_id": item_id, "transcript": transcript, "audio_ms": audio_ms}
