"""`input_audio_buffer.*`: the user's turns in the input audio.

Times are milliseconds of input audio since the session began.
"""

from mosslive.server.api_errors import Event


def speech_started(item_id: str, audio_start_ms: int) -> Event:
    """`item_id`: of the item that the turn will become."""
    return {
        "type": "input_audio_buffer.speech_started",
        "audio_start_ms": audio_start_ms,
        "item_id": item_id,
    }


def speech_stopped(item_id: str, audio_end_ms: int) -> Event:
    return {
        "type": "input_audio_buffer.speech_stopped",
        "audio_end_ms": audio_end_ms,
        "item_id": item_id,
    }


def committed(item_id: str, previous_item_id: str | None) -> Event:
    return {
        "type": "input_audio_buffer.committed",
        "item_id": item_id,
        "previous_item_id": previous_item_id,
    }


def cleared() -> Event:
    return {"type": "input_audio_buffer.cleared"}


def timeout_triggered(item_id: str, audio_start_ms: int, audio_end_ms: int) -> Event:
    """The idle timeout of turn detection commits this stretch of silence."""
    return {
        "type": "input_audio_buffer.timeout_triggered",
        "item_id": item_id,
        "audio_start_ms": audio_start_ms,
        "audio_end_ms": audio_end_ms,
    }
