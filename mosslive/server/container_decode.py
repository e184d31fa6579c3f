"""Decodes M4A, MP4, WebM, Matroska and AAC files of clients by FFmpeg (PyAV).

Runs in the process of `decode_process.py`, which limits memory, and whose caller limits time; one
thread. The first bytes choose the demuxer, and a list allows the codecs: FFmpeg's own guess would
also open playlists, which name other files and addresses. Imports no PyTorch, and knows nothing of
the server. Invariant: at most `most_s` of sound and `most_s * _PACKETS_PER_S` packets are read.
"""

from collections.abc import Iterator
from io import BytesIO

import numpy as np
from av import AudioFrame, FFmpegError
from av import open as av_open
from numpy.typing import NDArray

from mosslive.server.decode_limits import MOST_CHANNELS, MOST_RATE_HZ, Refused

_CODECS = ("aac", "alac", "flac", "mp3", "opus", "vorbis")  # FFmpeg's canonical names
# Names of their decoders. Opening a file already decodes a little of every stream, for its
# parameters, also of streams that nobody asked for.
_DECODERS = "aac,aac_fixed,alac,flac,mp3,mp3float,opus,libopus,vorbis,libvorbis"
_PACKETS_PER_S = 400  # the shortest packets of Opus have 2.5 ms
_OWN_PACKETS = 1000  # without sound, at the beginning or the end
_DEPTHS = {"s16": 1 << 15, "s32": 1 << 31, "flt": 1, "dbl": 1}  # full scale of sample formats


def demuxer_of(data: bytes) -> str | None:
    """FFmpeg's name of the container; None: the file is none of these."""
    if data[4:8] == b"ftyp":
        return "mov"
    if data[:4] == b"\x1aE\xdf\xa3":
        return "matroska"
    # ADTS and MP3 begin with the same twelve bits; the layer, two bits, is 0 in ADTS only.
    if len(data) > 1 and data[0] == 0xFF and data[1] & 0xF6 == 0xF0:
        return "aac"
    return None


def decode_container(data: bytes, demuxer: str, most_s: float) -> tuple[NDArray[np.float32], int]:
    """The first channel of the first audio stream, and its rate in Hz. Raises `Refused`."""
    pieces, count, rate_hz = [np.zeros(0, np.float32)], 0, 0
    try:
        for frame in _frames(data, demuxer, int(most_s * _PACKETS_PER_S) + _OWN_PACKETS):
            rate_hz = rate_hz or frame.sample_rate
            if frame.sample_rate != rate_hz:
                raise Refused("unreadable")
            count += frame.samples
            if count > most_s * min(rate_hz, MOST_RATE_HZ):
                raise Refused("too_long")
            pieces.append(_first_channel(frame))
    except (FFmpegError, ArithmeticError, LookupError, OSError, RuntimeError, ValueError):
        raise Refused("unreadable") from None
    except (AttributeError, MemoryError):  # PyAV has no codec for the stream
        raise Refused("unreadable") from None
    return np.concatenate(pieces), rate_hz


def _frames(data: bytes, demuxer: str, most_packets: int) -> Iterator[AudioFrame]:
    with av_open(
        BytesIO(data),
        "r",
        format=demuxer,
        options={"codec_whitelist": _DECODERS},
        metadata_errors="replace",
    ) as container:
        (stream, *_) = container.streams.audio  # ValueError: there is none
        context = stream.codec_context
        if context.codec.canonical_name not in _CODECS:
            raise Refused("unreadable")
        if context.channels > MOST_CHANNELS:
            raise Refused("too_long")
        context.thread_count = 1
        for number, packet in enumerate(container.demux(stream)):
            if number > most_packets:
                raise Refused("too_long")
            for frame in packet.decode():
                if len(frame.layout.channels) > MOST_CHANNELS:
                    raise Refused("too_long")
                yield frame


def _first_channel(frame: AudioFrame) -> NDArray[np.float32]:
    samples = frame.to_ndarray()  # [channels, n], or [1, n * channels] if interleaved
    first = samples[0] if frame.format.is_planar else samples[0, :: len(frame.layout.channels)]
    scale = np.float32(_DEPTHS[frame.format.name.removesuffix("p")])
    return np.asarray(first, np.float32) / scale
