"""Reads and writes audio files in HTTP bodies, by libsndfile, and M4A, WebM and AAC by FFmpeg.

Files are decoded in another process with limits of time and memory (`audio_decoder.py`). All
functions block; endpoints call them on a worker thread. Does not know endpoints.
"""

import base64
import binascii
import logging
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import torch

from mosslive.codec import Sound
from mosslive.codec.sound import BadSound, check_rate
from mosslive.server.api_errors import ApiError
from mosslive.server.audio_decoder import AudioDecoder, DecoderFailed
from mosslive.server.decode_limits import MOST_CHANNELS
from mosslive.server.realtime.formats import AudioFormat, Samples

_log = logging.getLogger("mosslive.audio")
_REFUSALS = {
    "unreadable": "the data is not readable as audio; allowed: WAV, FLAC, OGG, MP3, M4A, WebM, AAC",
    "empty": "the audio is empty",
    "not_finite": "the audio contains NaN or infinite samples",
}
# Output formats of libsndfile: container, encoding and media type.
FILES: dict[str, tuple[str, str, str]] = {
    "wav": ("WAV", "PCM_16", "audio/wav"),
    "flac": ("FLAC", "PCM_16", "audio/flac"),
    "mp3": ("MP3", "MPEG_LAYER_III", "audio/mpeg"),
    "opus": ("OGG", "OPUS", "audio/ogg"),
}


def read_base64(text: str, param: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError("the data is not valid base64", "invalid_base64", param) from None


def read_file(data: bytes, most_s: float, param: str | None = None) -> Sound:
    """The first channel of an audio file. Raises `ApiError` if it is longer than `most_s`."""
    try:
        decoded = _decoder().decode(data, most_s)
    except DecoderFailed as failed:
        _log.warning("an audio file is refused: %s", failed)
        decoded = "unreadable"
    if decoded == "too_long":
        raise _too_long(most_s, param)
    if isinstance(decoded, str):
        raise ApiError(_REFUSALS[decoded], "invalid_audio", param)
    wave, rate_hz = decoded
    try:
        return Sound(torch.from_numpy(wave), check_rate(rate_hz))
    except BadSound:
        raise ApiError(_REFUSALS["unreadable"], "invalid_audio", param) from None


@cache
def _decoder() -> AudioDecoder:
    """Of this process. Its own processes end with it."""
    return AudioDecoder()


def write_file(wave: Samples, rate_hz: int, kind: str) -> bytes:
    """A complete file of this format; `pcm` and `pcm16` are raw samples without a header."""
    if kind in ("pcm", "pcm16"):
        return AudioFormat().encode(wave)
    if kind == "aac":
        return _write_aac(wave, rate_hz)
    import soundfile

    container, coding, _ = FILES[kind]
    out = BytesIO()
    options: dict[str, Any] = {"format": container, "subtype": coding}
    soundfile.write(out, np.clip(wave, -1, 1), rate_hz, **options)
    return out.getvalue()


def _write_aac(wave: Samples, rate_hz: int) -> bytes:
    """AAC in ADTS, which players can start to read anywhere."""
    import av

    out = BytesIO()
    with av.open(out, "w", format="adts") as container:
        stream = container.add_stream("aac", rate=rate_hz, layout="mono")
        given = wave if len(wave) else np.zeros(1, np.float32)  # FFmpeg refuses an empty frame
        frame = av.AudioFrame.from_ndarray(np.clip(given, -1, 1)[None], "fltp", "mono")
        frame.sample_rate, frame.pts = rate_hz, 0
        for packet in (*stream.encode(frame), *stream.encode(None)):
            container.mux(packet)
    return out.getvalue()


def media_type(kind: str) -> str:
    if kind == "aac":
        return "audio/aac"
    return FILES[kind][2] if kind in FILES else "audio/pcm"


def check_kind(kind: object, param: str) -> str:
    allowed = (*FILES, "aac", "pcm", "pcm16")
    if not isinstance(kind, str) or kind not in allowed:
        message = f"{param} is {str(kind)[:80]!r}; allowed: {', '.join(allowed)}"
        raise ApiError(message, "unsupported_format", param)
    return kind


def _too_long(most_s: float, param: str | None) -> ApiError:
    message = f"the audio is longer than {most_s:g} s, or has more than {MOST_CHANNELS} channels"
    return ApiError(message, "audio_too_long", param, status=413)
