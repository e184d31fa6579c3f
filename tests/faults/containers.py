"""Audio files in the containers that FFmpeg reads, for tests."""

import io

import av
import numpy as np
from numpy.typing import NDArray

# Container and codec by name.
CONTAINERS = {
    "M4A": ("ipod", "aac"),
    "M4A ALAC": ("ipod", "alac"),
    "WEBM": ("webm", "libopus"),
    "MKV FLAC": ("matroska", "flac"),
    "AAC": ("adts", "aac"),
}


def contained(kind: str, wave: NDArray[np.float32], rate_hz: int) -> bytes:
    """`wave`: [n], or [n, channels]."""
    container, codec = CONTAINERS[kind]
    layout = "mono" if wave.ndim == 1 else {2: "stereo", 6: "5.1", 8: "7.1"}[wave.shape[1]]
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate_hz, layout=layout)
        assert isinstance(stream, av.AudioStream)
        step = rate_hz * 60  # a frame of an hour is too large for FFmpeg
        for first in range(0, len(wave), step):
            piece = wave[first : first + step].astype(np.float32).reshape(1, -1)
            frame = av.AudioFrame.from_ndarray(piece, "flt", layout)
            frame.sample_rate, frame.pts = rate_hz, first
            for packet in stream.encode(frame):
                file.mux(packet)
        for packet in stream.encode(None):
            file.mux(packet)
    return out.getvalue()
