"""The speaker encoder: a speaker as one vector of 192 numbers.

Runs the published CAM++ graph with onnxruntime on the CPU, once per voice. The network may be any
graph of the published form, whatever its widths and weights. Knows nothing of voices or files of
sound, and does not scale the vector to length one: the flow does that.
Invariant: a constructed encoder returns finite values; the constructor raises for any other file.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mosslive.checkpoint.campplus_onnx import MIN_FRAMES, VECTOR_WIDTH
from mosslive.codec.fbank import BANDS, RATE_HZ, fbank
from mosslive.errors import MossliveError

# Half a second. The network itself would take 3 frames; but a vector of less than a syllable or two
# describes the sound, not the speaker, and every reply would be spoken with it.
MIN_SAMPLES = RATE_HZ // 2

_SILENT = 4  # onnxruntime logs only what ends the process: everything else is raised here
_PROBE_FRAMES = (50, 51)  # even and odd: a graph frozen at one length cannot pass both


class BadSpeakerModel(MossliveError):
    """The file is not a speaker network of the published form."""


class BadVoiceAudio(MossliveError):
    """No speaker vector can be taken from this sound."""


class SpeakerEncoder:
    def __init__(self, path: str | Path, threads: int = 1) -> None:
        """`threads`: one is enough for a voice every now and then, and leaves the other cores to
        the live conversations."""
        self.path = Path(path)
        self._session = _open_session(self.path, threads)
        self._input = self._checked_form()
        for frames in _PROBE_FRAMES:  # the form may leave sizes open: a run closes them
            self._run(torch.zeros(frames, BANDS))

    def vector(self, wave_16k: Tensor) -> Tensor:
        """Mono sound at 16 kHz, [N] float in [-1, 1], N ≥ 8000 → float32 [192] on the CPU."""
        if wave_16k.ndim != 1 or not wave_16k.is_floating_point():
            raise BadVoiceAudio(
                f"a voice of shape {list(wave_16k.shape)} and type {wave_16k.dtype}; "
                "allowed: one channel of floating-point samples in [-1, 1]"
            )
        if len(wave_16k) < MIN_SAMPLES:
            raise BadVoiceAudio(
                f"a voice of {len(wave_16k) / RATE_HZ:.3f} s is too short for a speaker vector; "
                f"allowed: {MIN_SAMPLES / RATE_HZ} s or more"
            )
        if not torch.isfinite(wave_16k).all():
            raise BadVoiceAudio("the voice has samples that are NaN or infinite")
        features = fbank(wave_16k)
        return self.embed(features - features.mean(0, keepdim=True))

    def embed(self, features: Tensor) -> Tensor:
        """Features with their mean over time removed, [T, 80], T ≥ 3 → float32 [192]."""
        if features.ndim != 2 or features.shape[1] != BANDS or len(features) < MIN_FRAMES:
            raise BadVoiceAudio(
                f"speaker features of shape {list(features.shape)}; "
                f"allowed: [{MIN_FRAMES} or more, {BANDS}]"
            )
        if not torch.isfinite(features).all():  # also of sound that is finite but absurdly loud
            raise BadVoiceAudio("the speaker features have values that are NaN or infinite")
        return self._run(features)

    def _run(self, features: Tensor) -> Tensor:
        batch = np.ascontiguousarray(features.detach().float().cpu().numpy()[None])  # [1, T, 80]
        try:
            (found,) = self._session.run(None, {self._input: batch})
        except Exception as error:  # onnxruntime's errors share no base class of their own
            raise BadSpeakerModel(
                f"{self.path} cannot be run on {len(features)} frames: {_line(error)}"
            ) from error
        if found.size != VECTOR_WIDTH:
            raise BadSpeakerModel(
                f"{self.path} gives {list(found.shape)} for a voice; allowed: [.., {VECTOR_WIDTH}]"
            )
        vector = torch.from_numpy(found.reshape(VECTOR_WIDTH))
        if not torch.isfinite(vector).all():
            raise BadSpeakerModel(f"{self.path} gives a vector with NaN or infinite values")
        return vector

    def _checked_form(self) -> str:
        """The input's name, where no size that the file fixes contradicts the published form. Open
        sizes are names or None; the width of an output is left open by some exporters."""
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        forms = [[_form(value) for value in values] for values in (inputs, outputs)]
        fits = (
            len(inputs) == len(outputs) == 1
            and inputs[0].type == outputs[0].type == "tensor(float)"
            and len(inputs[0].shape) == 3
            and _agrees(inputs[0].shape, (1, None, BANDS))
            and _agrees(outputs[0].shape[-1:], (VECTOR_WIDTH,))
        )
        if not fits:
            raise BadSpeakerModel(
                f"{self.path} maps {', '.join(forms[0])} to {', '.join(forms[1])}; allowed: "
                f"float [1 or any, any, {BANDS}] to float [.., {VECTOR_WIDTH}]"
            )
        return str(inputs[0].name)


def _open_session(path: Path, threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MossliveError(
            "taking a speaker vector needs the package onnxruntime: pip install 'mosslive[voice]'"
        ) from error
    if not path.is_file():
        raise BadSpeakerModel(f"{path}: no such file")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _SILENT
    try:
        return onnxruntime.InferenceSession(
            str(path), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # see above
        raise BadSpeakerModel(f"{path} is no readable ONNX file: {_line(error)}") from error


def _agrees(sizes: list[Any], allowed: tuple[int | None, ...]) -> bool:
    """Every size that is fixed is the allowed one; None: it must not be fixed."""
    pairs = zip(sizes, allowed, strict=False)
    return all(not isinstance(size, int) or size == wanted for size, wanted in pairs)


def _form(value: Any) -> str:
    return f"{value.type.removeprefix('tensor(').removesuffix(')')} {list(value.shape)}"


def _line(error: Exception) -> str:
    """The first line of a message that may carry a stack of C++ frames."""
    return str(error).splitlines()[0]
