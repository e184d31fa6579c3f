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


def with_video(wave: NDArray[np.float32], rate_hz: int) -> bytes:
    """A Matroska file with a picture (MJPEG) and FLAC."""
    out = io.BytesIO()
    with av.open(out, "w", format="matroska") as file:
        video = file.add_stream("mjpeg", rate=25, width=64, height=64, pix_fmt="yuvj420p")
        assert isinstance(video, av.VideoStream)
        audio = file.add_stream("flac", rate=rate_hz, layout="mono")
        assert isinstance(audio, av.AudioStream)
        picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")
        sound = av.AudioFrame.from_ndarray(wave.astype(np.float32).reshape(1, -1), "flt", "mono")
        sound.sample_rate, sound.pts = rate_hz, 0
        for packet in (*video.encode(picture), *video.encode(None)):
            file.mux(packet)
        for packet in (*audio.encode(sound), *audio.encode(None)):
            file.mux(packet)
    return out.getvalue()
