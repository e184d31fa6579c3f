"""`output_audio_buffer.*`: playback on the server, so for WebRTC only."""

from mosslive.server.api_errors import Event


def started(response_id: str) -> Event:
    return {"type": "output_audio_buffer.started", "response_id": response_id}


def stopped(response_id: str) -> Event:
    return {"type": "output_audio_buffer.stopped", "response_id": response_id}


def cleared(response_id: str) -> Event:
    return {"type": "output_audio_buffer.cleared", "response_id": response_id}
