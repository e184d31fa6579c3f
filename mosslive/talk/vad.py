"""Voice activity detection: the probability of speech in each frame of 32 ms.

`turn_detection` decides what a probability means for the turn. The network is Silero's. Its wheel
carries the model; the package itself is not imported, because it sets PyTorch's thread count for
the whole process. Runs on the threads of `vad_threads`, one thread per instance at a time.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from mosslive.errors import MossliveError, NotFinite

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

VAD_HZ = 16_000
FRAME_SAMPLES = 512  # the only length that Silero takes at 16 kHz
_CONTEXT_SAMPLES = 64  # of the previous frame, which the network sees again


class VoiceActivity(Protocol):
    """One per microphone: it keeps state between frames."""

    def probability(self, frame: NDArray[np.float32]) -> float:
        """frame [512] at 16 kHz, in [-1, 1] → the probability of speech in it, 0 to 1."""
        ...

    def reset(self) -> None:
        """Clears the state: the next frame is the first."""
        ...


@dataclass(frozen=True)
class Speech:
    """Probabilities that another process has computed, in the order of the frames. They belong to
    one stream of sound; the first frame of a stream begins with its first sample. `ends`: answers
    of the end-of-turn model, as `EndChecks.take` returns them."""

    stream: int
    probabilities: Sequence[float]
    ends: Sequence[tuple[int, float]] = ()


class SileroVad:
    """All instances share the network; an instance holds its state only."""

    def __init__(self) -> None:
        _session()  # loads the network, or raises, here and not at the first frame
        self.reset()

    def reset(self) -> None:
        self._state = np.zeros((2, 1, 128), dtype=np.float32)
        self._context = np.zeros(_CONTEXT_SAMPLES, dtype=np.float32)

    def probability(self, frame: NDArray[np.float32]) -> float:
        return self.batch([self], [frame])[0]

    @staticmethod
    def batch(vads: "Sequence[SileroVad]", frames: Sequence[NDArray[np.float32]]) -> list[float]:
        """`probability` of one frame of each microphone, in one call of the network."""
        contexts = [vad._context for vad in vads]
        windows = np.concatenate((np.stack(contexts), np.stack(frames)), 1)  # [B, 576]
        state = np.concatenate([vad._state for vad in vads], 1)  # [2, B, 128]
        rate = np.array(VAD_HZ, dtype=np.int64)
        inputs = {"input": windows, "state": state, "sr": rate}
        speech, state = _session().run(None, inputs)
        for row, (vad, frame) in enumerate(zip(vads, frames, strict=True)):
            vad._state = state[:, row : row + 1]
            vad._context = frame[-_CONTEXT_SAMPLES:].copy()
        return [float(one) for one in speech[:, 0]]


def probabilities(
    vads: Sequence[VoiceActivity], frames: Sequence[NDArray[np.float32]]
) -> list[float]:
    """One frame of each of several microphones, together where the detector allows it."""
    silero = [vad for vad in vads if isinstance(vad, SileroVad)]
    if len(silero) == len(vads):
        found = SileroVad.batch(silero, frames)
    else:
        found = [vad.probability(frame) for vad, frame in zip(vads, frames, strict=True)]
    check_finite(found)
    return found


def check_finite(found: Sequence[float]) -> None:
    """Raises `NotFinite` for probabilities that are no numbers: NaN is below and above no
    threshold, so a user would be silent for ever."""
    if not all(map(isfinite, found)):
        raise NotFinite("voice activity detection computed values that are not finite numbers")


@cache
def vad_threads() -> Executor:
    """The threads that all conversations share. Few, because half of the work holds the GIL."""
    threads = max(1, min(4, (os.cpu_count() or 2) // 2))
    return ThreadPoolExecutor(threads, thread_name_prefix="mosslive-vad")


@cache
def _session() -> "InferenceSession":
    package = find_spec("silero_vad")
    if package is None or package.origin is None or find_spec("onnxruntime") is None:
        raise MossliveError(
            "detecting speech needs silero-vad and onnxruntime, which are not installed: "
            "pip install 'mosslive[talk]', or use push to talk (TalkSettings(turns=None))"
        )
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # a frame takes 0.2 ms
    model = Path(package.origin).parent / "data" / "silero_vad.onnx"
    return InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
