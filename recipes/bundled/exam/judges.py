"""The judges: a speech recogniser, and a rating of how speech sounds.

Moonshine base (int8, greedy) and DNSMOS, both through onnxruntime. Neither was trained on data of
this project. All sounds are treated alike: 16 kHz, nothing cut, nothing added. Does not know what a
sound should say.
"""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mosslive.codec.mel import HEARING_HZ
from mosslive.codec.resample import resample
from mosslive.errors import MossliveError
from recipes.bundled.exam.fetch import FROM_NPM, FROM_WHEEL
from recipes.bundled.exam.folder import Exam

Wave = NDArray[np.float32]
_LEAST_S = 0.12  # shortest input of the recogniser
PAUSE_S = 0.25  # on either side of a rated sound
_TOKENS_PER_S = 10  # limits hallucinated transcripts
REMEDY = "`make judges` installs and fetches them (or pip install 'mosslive[eval]', then python -m"
REMEDY += " recipes.bundled.exam.fetch DIR and --judges DIR)"


class NoJudges(MossliveError):
    """A package or file of the judges is missing."""


class Judges:
    def __init__(self, folder: str | Path) -> None:
        """Raises `NoJudges` if a file or package is missing, before anything slow runs."""
        self.folder = Path(folder)
        absent = [name for name in (*FROM_NPM, *FROM_WHEEL) if not (self.folder / name).is_file()]
        if absent:
            raise NoJudges(f"{self.folder}: no {', '.join(absent)}; {REMEDY}")
        try:
            import librosa  # noqa: F401  # needed by speechmos
            import moonshine_onnx  # noqa: F401
            from speechmos import dnsmos  # noqa: F401
        except ImportError as error:
            raise NoJudges(f"{error.name} is not installed; {REMEDY}") from None

    def transcribe(self, wave: Wave, rate_hz: int) -> str:
        """Returns the transcript; empty for sound that is too short."""
        sound = self._heard(wave, rate_hz)
        seconds = len(sound) / HEARING_HZ
        if seconds < _LEAST_S:
            return ""
        most = max(16, round(_TOKENS_PER_S * seconds))
        tokens = self._recogniser.generate(sound[None], max_len=most)
        text: str = self._tokenizer.decode_batch(tokens)[0]
        return text.strip()

    def rate(self, wave: Wave, rate_hz: int, pause_s: float = PAUSE_S) -> float:
        """Returns DNSMOS overall, 1 to 5. It rates nine seconds and repeats shorter sound; without
        a pause the end of a reply would touch its start, and the joints would be rated too."""
        from speechmos import dnsmos

        sound = self._heard(wave, rate_hz)
        if len(sound) < HEARING_HZ * _LEAST_S:
            return 1.0
        sound = np.pad(sound, round(HEARING_HZ * pause_s))
        return float(dnsmos.run(np.clip(sound, -1, 1), HEARING_HZ)["ovrl_mos"])

    def _heard(self, wave: Wave, rate_hz: int) -> Wave:
        heard: Wave = resample(torch.from_numpy(wave), rate_hz, HEARING_HZ).numpy()
        return heard

    @cached_property
    def _recogniser(self) -> Any:
        from moonshine_onnx import MoonshineOnnxModel

        return MoonshineOnnxModel(self.folder / "moonshine-base", "base")

    @cached_property
    def _tokenizer(self) -> Any:
        from moonshine_onnx import load_tokenizer

        return load_tokenizer()


class TranscriptCache:
    """Transcripts of the synthesiser, cached in the examination's folder: they do not depend on the
    examined model and take minutes."""

    def __init__(self, exam: Exam) -> None:
        self._path = exam.folder / "heard-moonshine-base-int8.json"
        self._sound_bytes = exam.sound_bytes  # detects another examination in the same folder
        self.texts = self._kept()

    def _kept(self) -> dict[int, str]:
        if not self._path.is_file():
            return {}
        kept = json.loads(self._path.read_text(encoding="utf-8"))
        ours = kept["sound_bytes"] == self._sound_bytes
        return {int(number): text for number, text in kept["texts"].items()} if ours else {}

    def save(self) -> None:
        """Saves the transcripts, merged with those of other runs."""
        content = {"sound_bytes": self._sound_bytes, "texts": self._kept() | self.texts}
        part = self._path.with_suffix(".part")
        try:
            part.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
            part.replace(self._path)
        except OSError:  # without a cache the next run only takes longer
            part.unlink(missing_ok=True)
