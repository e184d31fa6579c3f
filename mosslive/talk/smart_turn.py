"""The probability that a speaker has finished: Smart Turn v3.2, a small network on the last 8 s.

Its file comes with the wheel of `pipecat-ai`. As with Silero's, only the file is used and the
package is not imported. The input is Whisper's log-mel spectrogram of exactly 8 s at 16 kHz, scaled
to mean 0 and variance 1 before; shorter sound follows silence. Blocks for long (124 ms on a core of
an ARM Neoverse N1), so it runs on a thread, never on an event loop. All instances share the
network. Does not know turns or pauses.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from mosslive.codec.mel import floor_and_scale, segment_log10_mel
from mosslive.errors import MossliveError
from mosslive.talk.vad import VAD_HZ

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

WINDOW_SAMPLES = 8 * VAD_HZ
_BANDS = 80
_LEAST_VARIANCE = 1e-7
_FILE = Path("audio", "turn", "smart_turn", "data", "smart-turn-v3.2-cpu.onnx")
_MISSING = (
    "the end-of-turn model needs the file of pipecat-ai 1.0 or later, and onnxruntime, which are "
    "not installed: pip install 'mosslive[smart-turn]', or pip install --no-deps pipecat-ai"
)


class EndModel(Protocol):
    def complete(self, wave: NDArray[np.float32]) -> float:
        """wave [n] at 16 kHz: a turn up to now, its last 8 s suffice → the probability that the
        speaker has finished, 0 to 1."""
        ...


class SmartTurn:
    def __init__(self) -> None:
        _session()  # loads the network, or raises, here and not at the first pause

    def complete(self, wave: NDArray[np.float32]) -> float:
        # The file names its output "logits", but it is a probability.
        (answer,) = _session().run(None, {"input_features": features(wave)[None]})
        return float(answer[0, 0])


def features(wave: NDArray[np.float32]) -> NDArray[np.float32]:
    """wave [n] at 16 kHz, of which the last 8 s count → [80, 800]."""
    window = np.zeros(WINDOW_SAMPLES, np.float32)
    recent = wave[-WINDOW_SAMPLES:]
    window[WINDOW_SAMPLES - len(recent) :] = recent
    scaled = (window - window.mean()) / np.sqrt(window.var() + _LEAST_VARIANCE)
    log10 = segment_log10_mel(torch.from_numpy(scaled), _BANDS)
    made: NDArray[np.float32] = floor_and_scale(log10, log10.max()).numpy()
    return made


def is_installed() -> bool:
    return _file() is not None and find_spec("onnxruntime") is not None


def _file() -> Path | None:
    package = find_spec("pipecat")
    folders = (package.submodule_search_locations if package else None) or ()
    return next((path for folder in folders if (path := Path(folder) / _FILE).is_file()), None)


@cache
def _session() -> "InferenceSession":
    model = _file()
    if model is None or find_spec("onnxruntime") is None:
        raise MossliveError(_MISSING)
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # others need the cores
    return InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
