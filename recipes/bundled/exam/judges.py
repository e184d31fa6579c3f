"""The judges: a recogniser that writes down what it hears, and a rating of how speech sounds.

Moonshine base (int8, greedy) and DNSMOS, both through onnxruntime; neither was trained on anything
of ours. They hear every sound alike: 16 kHz, nothing cut, nothing added. Knows sound, not what it
should have said.
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
_LEAST_S = 0.12  # the recogniser refuses less
PAUSE_S = 0.25  # on either side of what is rated
_TOKENS_PER_S = 10  # a reply of a second is not a page, whatever the recogniser dreams
REMEDY = "`make judges` installs and fetches them (or pip install 'mosslive[eval]', then python -m"
REMEDY += " recipes.bundled.exam.fetch DIR and --judges DIR)"


class NoJudges(MossliveError):
    """What judges the answers is not installed, or its files are not there."""


class Judges:
    def __init__(self, folder: str | Path) -> None:
        """Refuses at once if anything is missing, before minutes are spent."""
        self.folder = Path(folder)
        absent = [name for name in (*FROM_NPM, *FROM_WHEEL) if not (self.folder / name).is_file()]
        if absent:
            raise NoJudges(f"{self.folder}: no {', '.join(absent)}; {REMEDY}")
        try:
            import librosa  # noqa: F401  # of the rating
            import moonshine_onnx  # noqa: F401
            from speechmos import dnsmos  # noqa: F401
        except ImportError as error:
            raise NoJudges(f"{error.name} is not installed; {REMEDY}") from None

    def hear(self, wave: Wave, rate_hz: int) -> str:
        """What was said, as the recogniser writes it; empty for next to no sound."""
        sound = self._heard(wave, rate_hz)
        seconds = len(sound) / HEARING_HZ
        if seconds < _LEAST_S:
            return ""
        most = max(16, round(_TOKENS_PER_S * seconds))
        tokens = self._recogniser.generate(sound[None], max_len=most)
        text: str = self._tokenizer.decode_batch(tokens)[0]
        return text.strip()

    def rate(self, wave: Wave, rate_hz: int, pause_s: float = PAUSE_S) -> float:
        """DNSMOS, overall, 1 to 5. It rates nine seconds and repeats what is shorter: without a
        pause around, the end of a reply runs into its beginning, and the joints are rated too."""
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


class OwnHearings:
    """What the recogniser hears when the synthesiser itself speaks, kept beside the examination: it
    does not depend on the model that is examined, and it takes minutes."""

    def __init__(self, exam: Exam) -> None:
        self._path = exam.folder / "heard-moonshine-base-int8.json"
        self._sound_bytes = exam.sound_bytes  # another examination in the same folder is not ours
        self.texts = self._kept()

    def _kept(self) -> dict[int, str]:
        if not self._path.is_file():
            return {}
        kept = json.loads(self._path.read_text(encoding="utf-8"))
        ours = kept["sound_bytes"] == self._sound_bytes
        return {int(number): text for number, text in kept["texts"].items()} if ours else {}

    def save(self) -> None:
        """With what another run has heard in the meantime."""
        content = {"sound_bytes": self._sound_bytes, "texts": self._kept() | self.texts}
        part = self._path.with_suffix(".part")
        try:
            part.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
            part.replace(self._path)
        except OSError:  # a folder that cannot be written to costs time, not the measurement
            part.unlink(missing_ok=True)
