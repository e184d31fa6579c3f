"""A process that decodes audio files of clients: `python -m mosslive.server.decode_process`.

A file from outside meets a large decoder in C here, and nothing else: a crash or an endless loop
ends this process, not the conversations. Reads requests from standard input and writes answers to
standard output until the input ends; `audio_decoder.py` is the other side. One thread. Decodes
block by block, so that a small file that holds hours is refused before it fills memory. Imports no
PyTorch, and knows nothing of the server.

    request: a line of JSON {"bytes": n, "most_s": s}, then n bytes
    answer:  a line of JSON {"rate_hz": r, "samples": m}, then m float32; or {"refused": code}
"""

import json
import sys
from io import BytesIO
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mosslive.server.container_decode import decode_container, demuxer_of
from mosslive.server.decode_limits import MOST_CHANNELS, MOST_RATE_HZ, Refused

_BLOCK_FRAMES = 1 << 16
_OWN_BYTES = 1 << 30  # of addresses: the interpreter, its libraries and one file


def decode(data: bytes, most_s: float) -> tuple[NDArray[np.float32], int]:
    """The first channel in [-1, 1], and its rate in Hz. Raises `Refused`."""
    demuxer = demuxer_of(data)
    wave, rate_hz = (
        decode_container(data, demuxer, most_s) if demuxer else _decode_plain(data, most_s)
    )
    if not len(wave):
        raise Refused("empty")
    if not np.isfinite(wave).all():
        raise Refused("not_finite")
    return wave.clip(-1, 1), rate_hz


def _decode_plain(data: bytes, most_s: float) -> tuple[NDArray[np.float32], int]:
    """WAV, FLAC, OGG and MP3, by libsndfile."""
    import soundfile

    pieces, count = [np.zeros(0, np.float32)], 0
    try:
        with soundfile.SoundFile(BytesIO(data)) as file:
            rate_hz = int(file.samplerate)
            most = int(most_s * min(rate_hz, MOST_RATE_HZ))
            if file.frames > most or file.channels > MOST_CHANNELS:
                raise Refused("too_long")
            while len(block := file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
                count += len(block)
                if count > most:  # the header stated fewer frames
                    raise Refused("too_long")
                pieces.append(block[:, 0].copy())
    except (soundfile.LibsndfileError, OSError, RuntimeError, ValueError, MemoryError):
        raise Refused("unreadable") from None
    return np.concatenate(pieces), rate_hz


def answer(request: dict[str, Any], data: bytes, out: IO[bytes]) -> None:
    try:
        wave, rate_hz = decode(data, float(request["most_s"]))
    except Refused as refused:
        head, body = {"refused": refused.code}, b""
    else:
        head, body = {"rate_hz": rate_hz, "samples": len(wave)}, wave.tobytes()  # type: ignore[dict-item]
    out.write(json.dumps(head).encode() + b"\n" + body)
    out.flush()


def _limit_memory(most_s: float) -> None:
    """A decoder may ask for any size that a header names."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    wanted = _OWN_BYTES + 4 * 4 * int(most_s * MOST_RATE_HZ)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    within = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (within, hard))


def main() -> None:
    given, out = sys.stdin.buffer, sys.stdout.buffer
    while line := given.readline():
        request = json.loads(line)
        data = given.read(request["bytes"])
        _limit_memory(request["most_s"])
        answer(request, data, out)


if __name__ == "__main__":
    main()
