"""Sound of a microphone as frames for the VAD, and the speech probabilities of these frames.

`SpeechSource` is what a segmenter needs: `LocalSpeech` runs the VAD itself, `GivenSpeech` takes
probabilities that another process has computed with a `FrameStream` of its own. Both also give the
answers of the end-of-turn model, if there is one. One per microphone, used by one thread at a time.
Does not know what a probability means for the turn.
"""

from collections import deque
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec.resample import ResampleStream
from mosslive.talk.end_checks import EndChecks
from mosslive.talk.vad import FRAME_SAMPLES, VAD_HZ, VoiceActivity, check_finite


class SpeechSource(Protocol):
    slow: bool  # `next` takes too long for the event loop

    @property
    def waiting(self) -> int:
        """How many times `next` can be called."""
        ...

    def push(self, wave: Tensor) -> None:
        """wave [n] float32, the next sound."""
        ...

    def next(self) -> float:
        """The probability of speech in the next frame."""
        ...

    def ends(self) -> list[tuple[int, float]]:
        """New answers of the end-of-turn model, as `EndChecks.take` returns them."""
        ...


class FrameStream:
    """Sound at any rate → frames of 512 samples at 16 kHz."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._resampler = ResampleStream(rate_hz, VAD_HZ)
        self._pieces: list[Tensor] = []  # at `rate_hz`, not resampled yet
        self._received = 0  # samples at `rate_hz`
        self._wave = torch.zeros(0)  # [m] at 16 kHz, not taken yet
        self._taken = 0  # frames

    @property
    def waiting(self) -> int:
        return len(self._wave) // FRAME_SAMPLES

    def push(self, wave: Tensor) -> None:
        self._pieces.append(wave)
        self._received += len(wave)
        # Resampling a packet costs the same whatever its length, so only when a frame may be whole.
        most = self._received * VAD_HZ // self._rate_hz // FRAME_SAMPLES
        if most > self._taken + self.waiting:
            pieces, self._pieces = torch.cat(self._pieces), []
            self._wave = torch.cat((self._wave, self._resampler.push(pieces)))

    def take(self) -> NDArray[np.float32]:
        frame, rest = self._wave[:FRAME_SAMPLES], self._wave[FRAME_SAMPLES:]
        self._taken += 1
        # The last frame of a packet: frees the packet that the rest is a view of.
        self._wave = rest if len(rest) >= FRAME_SAMPLES else rest.clone()
        taken: NDArray[np.float32] = np.ascontiguousarray(frame.numpy())
        return taken


class LocalSpeech:
    slow = True

    def __init__(self, vad: VoiceActivity, rate_hz: int, checks: EndChecks | None = None) -> None:
        self._vad, self._frames, self._checks = vad, FrameStream(rate_hz), checks

    @property
    def waiting(self) -> int:
        return self._frames.waiting

    def push(self, wave: Tensor) -> None:
        self._frames.push(wave)

    def next(self) -> float:
        frame = self._frames.take()
        probability = self._vad.probability(frame)
        check_finite([probability])
        if self._checks:
            self._checks.push(frame, probability)
        return probability

    def ends(self) -> list[tuple[int, float]]:
        return self._checks.take() if self._checks else []


class GivenSpeech:
    """A frame waits once its probability is known and its sound has been pushed."""

    slow = False

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._known: deque[float] = deque()
        self._ends: list[tuple[int, float]] = []
        self._received = 0  # samples at `rate_hz`
        self._taken = 0  # frames

    @property
    def waiting(self) -> int:
        arrived = self._received * VAD_HZ // self._rate_hz // FRAME_SAMPLES
        return min(len(self._known), arrived - self._taken)

    def give(self, probabilities: Iterable[float], ends: Iterable[tuple[int, float]] = ()) -> None:
        self._known.extend(probabilities)
        self._ends.extend(ends)

    def push(self, wave: Tensor) -> None:
        self._received += wave.shape[0]

    def next(self) -> float:
        self._taken += 1
        return self._known.popleft()

    def ends(self) -> list[tuple[int, float]]:
        ends, self._ends = self._ends, []
        return ends
