"""The peer's microphone: frames of an incoming track → samples at the session's rate.

Runs on the event loop; one object per track, because resampling has state. Knows no session.
"""

from typing import Any

import numpy as np
import torch
from av import AudioFrame
from numpy.typing import NDArray

from mosslive.codec.resample import ResampleStream


class Microphone:
    def __init__(self, rate_hz: int) -> None:
        """`rate_hz`: of the samples that `push` returns."""
        self._to_hz = rate_hz
        self._from_hz = 0
        self._resampler = ResampleStream(1, 1)

    def push(self, frame: AudioFrame) -> NDArray[np.float32]:
        """The next samples, mono. The rate of the frames may change."""
        if frame.sample_rate != self._from_hz:
            self._from_hz = frame.sample_rate
            self._resampler = ResampleStream(self._from_hz, self._to_hz)
        wave: NDArray[Any] = frame.to_ndarray()  # [1, n · channels] int16
        mono = wave.reshape(-1, frame.layout.nb_channels).mean(1, dtype=np.float32) / 32768
        return self._resampler.push(torch.from_numpy(mono)).numpy()
