"""Microphone and loudspeaker of a live conversation, through sounddevice (imported when used).

The sound card's thread calls two callbacks: one passes recorded audio to the event loop, the other
plays queued audio and reports how much was played. Does not know turns.
"""

import asyncio
import threading
from collections import deque
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mosslive.cli.sound_card import NoSoundCard, sounddevice
from mosslive.talk import Talk

_BLOCK_S = 0.02


class Duplex:
    """Context manager: records and plays while it is open."""

    def __init__(self, talk: Talk, out_hz: int, loop: asyncio.AbstractEventLoop) -> None:
        device = sounddevice()
        self._talk, self._loop = talk, loop
        self._queue: deque[NDArray[np.float32]] = deque()
        self._lock = threading.Lock()
        self._played = 0  # samples of the reply being played
        self._closed = False
        try:
            in_hz = int(device.query_devices(kind="input")["default_samplerate"])
            self._streams = (
                device.InputStream(
                    in_hz, round(in_hz * _BLOCK_S), channels=1, callback=self._record
                ),
                device.OutputStream(
                    out_hz, round(out_hz * _BLOCK_S), channels=1, callback=self._play
                ),
            )
        except (device.PortAudioError, ValueError) as error:
            raise NoSoundCard(
                f"no sound device: {error}; --mic needs a microphone and a loudspeaker. Without "
                f"them, send audio files instead"
            ) from None
        self._in_hz = in_hz

    def __enter__(self) -> "Duplex":
        for stream in self._streams:
            stream.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stream in self._streams:
            stream.close()
        self._closed = True

    def play(self, pcm: NDArray[np.float32]) -> None:
        with self._lock:
            self._queue.append(np.clip(pcm, -1, 1))

    def new_reply(self) -> None:
        """Drops the queued audio and restarts the count of played samples."""
        with self._lock:
            self._queue.clear()
            self._played = 0

    def _recorded(self, pcm: NDArray[np.float32]) -> None:
        if not self._closed:  # a last call may arrive after the end
            self._talk.push_audio(pcm, self._in_hz)

    # On the sound card's thread.

    def _record(self, data: NDArray[np.float32], count: int, time: Any, status: Any) -> None:
        self._loop.call_soon_threadsafe(self._recorded, data[:, 0].copy())

    def _play(self, data: NDArray[np.float32], count: int, time: Any, status: Any) -> None:
        data.fill(0)
        filled = 0
        with self._lock:
            while self._queue and filled < count:
                piece = self._queue.popleft()
                now = piece[: count - filled]
                data[filled : filled + len(now), 0] = now
                filled += len(now)
                if len(now) < len(piece):
                    self._queue.appendleft(piece[len(now) :])
            self._played += filled
            played = self._played
        if filled:
            self._loop.call_soon_threadsafe(self._talk.played, played)
