"""Long values of events: sounds, recordings, bytes and texts, by the short texts of `script.py`.

Pure functions; the same text always gives the same value.
"""

import base64
import io
import random
from functools import lru_cache

import numpy as np
import soundfile
from numpy.typing import NDArray

from tests.server.rig import RATE, pcm_bytes, spoken, turn


@lru_cache(maxsize=256)
def value_of(text: str) -> str:
    name, _, rest = text[1:].partition(":")
    if name == "text":
        return ("word " * (int(rest) // 5 + 1))[: int(rest)]
    if name == "bytes":
        data = random.Random(rest).randbytes(int(rest))
    elif name == "file":
        data = recording(rest)
    else:
        data = pcm_bytes(sound(text))
    return base64.b64encode(data).decode()


def sound(text: str) -> NDArray[np.float32]:
    """Samples at 24 kHz of a `$loud`, `$turn` or `$silence` text."""
    name, *numbers = text[1:].split(":")
    seconds = int(numbers[0]) / 1000
    if name == "silence":
        return np.zeros(round(seconds * RATE), np.float32)
    make = turn if name == "turn" else spoken
    return make(seconds, int(numbers[1]))


def recording(kind: str) -> bytes:
    """A file with 0.3 s of speech: wav, flac, ogg, mp3. `empty`, `noise`, `cut`: files that are
    none."""
    if kind == "empty":
        return b""
    if kind == "noise":
        return bytes(range(256)) * 20
    out = io.BytesIO()
    name = "FLAC" if kind == "cut" else kind.upper()
    soundfile.write(out, sound("$loud:300:1"), RATE, format=name)
    data = out.getvalue()
    return data[: len(data) // 3] if kind == "cut" else data
