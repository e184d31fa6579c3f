"""The peer's microphone: frames of an incoming track → samples at the session's rate.

Sound keeps its pace: silence takes the place of frames that are lost or that the peer does not send
while nobody speaks (Opus DTX, a muted track). Otherwise a turn would not end, because its silence
would never arrive. Runs on the event loop; one object per track, because resampling has state.
Knows no session and no clock. Invariant: silence that stands for one pause is at most
`MOST_PAUSE_S` long.
"""

from typing import Any

import numpy as np
import torch
from av import AudioFrame
from numpy.typing import NDArray

from mosslive.codec.resample import ResampleStream

PAUSE_S = 0.25  # without a frame is a pause; jitter and bursts of losses are shorter
MOST_PAUSE_S = 5.0  # longer than the silence that ends any turn


class Microphone:
    def __init__(self, rate_hz: int) -> None:
        """`rate_hz`: of the samples that are returned."""
        self._to_hz = rate_hz
        self._from_hz = 0
        self._resampler = ResampleStream(1, 1)
        self._next: int | None = None  # sample at which the next frame should begin
        self._filled = 0  # samples of silence since the last frame

    def push(self, frame: AudioFrame) -> NDArray[np.float32]:
        """The next samples, mono. The rate of the frames may change."""
        if frame.sample_rate != self._from_hz:
            self._from_hz = frame.sample_rate
            self._resampler = ResampleStream(self._from_hz, self._to_hz)
            self._next = None
        wave: NDArray[Any] = frame.to_ndarray()  # [1, n · channels] int16
        mono = wave.reshape(-1, frame.layout.nb_channels).mean(1, dtype=np.float32) / 32768
        missing = np.zeros(self._missing(frame), np.float32)
        return self._resample(np.concatenate((missing, mono)))

    def pause(self, seconds: float) -> NDArray[np.float32]:
        """No frame came for this long: the silence in its place. Empty before the first frame, and
        if the pause is longer than `MOST_PAUSE_S`."""
        if self._next is None:
            return np.zeros(0, np.float32)
        count = min(round(seconds * self._from_hz), self._room)
        self._filled += count
        return self._resample(np.zeros(count, np.float32))

    def _missing(self, frame: AudioFrame) -> int:
        """How many samples are missing before this frame, by its time stamp."""
        if frame.pts is None or frame.time_base is None:
            return 0
        begin, expected = round(frame.pts * frame.time_base * self._from_hz), self._next
        missing = 0 if expected is None else begin - expected - self._filled
        missing = min(max(0, missing), self._room)
        self._next, self._filled = begin + frame.samples, 0
        return missing

    @property
    def _room(self) -> int:
        """Samples of silence that this pause may still get."""
        return round(MOST_PAUSE_S * self._from_hz) - self._filled

    def _resample(self, mono: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._resampler.push(torch.from_numpy(mono)).numpy()
