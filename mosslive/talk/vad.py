"""Is this speech? One probability per frame of 32 ms.

Only the question is asked here; what an answer means for the turn is decided in `turns`. The
network is Silero's: its wheel carries the model, and the package itself is not imported, because
it sets PyTorch's thread count for the whole process.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from mosslive.errors import MossliveError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

VAD_HZ = 16_000
FRAME_SAMPLES = 512  # the one length Silero takes at 16 kHz
_CONTEXT_SAMPLES = 64  # of the frame before, which the network sees again


class VoiceActivity(Protocol):
    """One per microphone: it remembers what it heard."""

    def probability(self, frame: NDArray[np.float32]) -> float:
        """frame [512] at 16 kHz, in [-1, 1] → how likely somebody speaks in it, 0 to 1."""
        ...

    def reset(self) -> None:
        """Forgets everything: the next frame is the first."""
        ...


class SileroVad:
    """The network is shared by all instances; an instance is its memory alone."""

    def __init__(self) -> None:
        self._session = _session()
        self.reset()

    def reset(self) -> None:
        self._state = np.zeros((2, 1, 128), dtype=np.float32)
        self._context = np.zeros(_CONTEXT_SAMPLES, dtype=np.float32)

    def probability(self, frame: NDArray[np.float32]) -> float:
        window = np.concatenate((self._context, frame))[None]  # [1, 576]
        rate = np.array(VAD_HZ, dtype=np.int64)
        given = {"input": window, "state": self._state, "sr": rate}
        speech, self._state = self._session.run(None, given)
        self._context = frame[-_CONTEXT_SAMPLES:].copy()
        return float(speech[0, 0])


@cache
def _session() -> "InferenceSession":
    package = find_spec("silero_vad")
    if package is None or package.origin is None or find_spec("onnxruntime") is None:
        raise MossliveError(
            "hearing when somebody speaks needs silero-vad and onnxruntime: "
            "pip install 'mosslive[talk]', or say yourself when a turn ends (push to talk)"
        )
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # a fifth of a millisecond
    model = Path(package.origin).parent / "data" / "silero_vad.onnx"
    return InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
