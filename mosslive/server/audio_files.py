"""Reads and writes audio files in HTTP bodies (WAV, FLAC, OGG, MP3), by libsndfile.

A file is decoded block by block, so a small file that holds hours of audio is refused before it
fills memory. All functions block; endpoints call them on a worker thread. Does not know endpoints.
"""

import base64
import binascii
from io import BytesIO
from typing import Any

import numpy as np
import torch

from mosslive.codec import Sound
from mosslive.codec.sound import check_rate
from mosslive.server.api_errors import ApiError
from mosslive.server.realtime.formats import AudioFormat, Samples

_BLOCK_FRAMES = 1 << 16
_MOST_CHANNELS = 8
# Output formats: libsndfile's container and encoding, and the media type.
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
    import soundfile

    try:
        with soundfile.SoundFile(BytesIO(data)) as file:
            rate_hz = check_rate(file.samplerate)
            most = int(most_s * rate_hz)
            if file.frames > most or file.channels > _MOST_CHANNELS:
                raise _too_long(most_s, param)
            pieces: list[Samples] = []
            count = 0
            while len(block := file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
                count += len(block)
                if count > most:  # the header stated fewer frames
                    raise _too_long(most_s, param)
                pieces.append(block[:, 0].copy())
    except (soundfile.LibsndfileError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ApiError):
            raise
        raise ApiError(
            "the data is not readable as audio; allowed: WAV, FLAC, OGG, MP3",
            "invalid_audio",
            param,
        ) from None
    if not count:
        raise ApiError("the audio is empty", "invalid_audio", param)
    wave = np.concatenate(pieces)
    if not np.isfinite(wave).all():
        raise ApiError("the audio contains NaN or infinite samples", "invalid_audio", param)
    return Sound(torch.from_numpy(wave.clip(-1, 1)), rate_hz)


def write_file(wave: Samples, rate_hz: int, kind: str) -> bytes:
    """A complete file of this format; `pcm` and `pcm16` are raw samples without a header."""
    if kind in ("pcm", "pcm16"):
        return AudioFormat().encode(wave)
    import soundfile

    container, coding, _ = FILES[kind]
    out = BytesIO()
    options: dict[str, Any] = {"format": container, "subtype": coding}
    soundfile.write(out, np.clip(wave, -1, 1), rate_hz, **options)
    return out.getvalue()


def media_type(kind: str) -> str:
    return FILES[kind][2] if kind in FILES else "audio/pcm"


def check_kind(kind: object, param: str) -> str:
    allowed = (*FILES, "pcm", "pcm16")
    if not isinstance(kind, str) or kind not in allowed:
        message = f"{param} is {str(kind)[:80]!r}; allowed: {', '.join(allowed)}"
        raise ApiError(message, "unsupported_format", param)
    return kind


def _too_long(most_s: float, param: str | None) -> ApiError:
    message = f"the audio is longer than {most_s:g} s, or has more than {_MOST_CHANNELS} channels"
    return ApiError(message, "audio_too_long", param, status=413)
