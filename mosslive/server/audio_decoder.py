"""Runs decoders of audio files in processes of their own, with a limit of time.

A decoder that crashes, hangs or writes nonsense is killed, and its file is refused; the next file
gets a new process. At most `_MOST_PROCESSES` run. They start when they are needed, wait for the
next file, and end with this process, because their input ends then. Worker threads call it and
block. Knows processes; `decode_process.py` knows audio.
"""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mosslive.server.child_processes import child_environment

_MOST_PROCESSES = 2
_MOST_S = 20.0  # to decode one file: minutes of sound take less than a second


class DecoderFailed(Exception):
    """The process crashed or took too long."""


class _Process:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mosslive.server.decode_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # decoders write there what a file makes them write
            env=child_environment(),
        )

    def decode(self, data: bytes, most_s: float) -> tuple[dict[str, Any], bytes]:
        timer = threading.Timer(_MOST_S, self._process.kill)
        timer.start()
        try:
            given, out = self._process.stdin, self._process.stdout
            assert given is not None
            assert out is not None
            given.write(json.dumps({"bytes": len(data), "most_s": most_s}).encode() + b"\n" + data)
            given.flush()
            head: dict[str, Any] = json.loads(out.readline())
            body = _read(out, 4 * int(head.get("samples", 0)))
        except (OSError, ValueError) as error:
            self.close()
            status = self._process.returncode
            raise DecoderFailed(f"the decoder of audio files ended with status {status}") from error
        finally:
            timer.cancel()
        return head, body

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # unsent bytes
                if pipe is not None:
                    pipe.close()


class AudioDecoder:
    """A few processes for all threads."""

    def __init__(self) -> None:
        self._slots = threading.BoundedSemaphore(_MOST_PROCESSES)
        self._idle: list[_Process] = []

    def decode(self, data: bytes, most_s: float) -> tuple[NDArray[np.float32], int] | str:
        """The first channel and its rate in Hz, or why the file is refused. Raises
        `DecoderFailed`."""
        with self._slots:
            process = self._idle.pop() if self._idle else _Process()
            head, body = process.decode(data, most_s)
            self._idle.append(process)
        if "refused" in head:
            return str(head["refused"])
        return np.frombuffer(body, np.float32).copy(), int(head["rate_hz"])

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _read(out: IO[bytes], count: int) -> bytes:
    body = out.read(count)
    if len(body) < count:
        raise OSError("the answer is incomplete")
    return body
