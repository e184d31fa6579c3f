"""Measures how the codec carries human speech: two recordings with known text, before and after it.

The output voice is the assistant's; the figure is whether the words survive. Two recordings are an
indication only, and the figures say how few they are.
"""

from collections.abc import Iterator

import numpy as np
import torch

from mosslive.codec.resample import resample
from mosslive.codec.sound import read_sound
from recipes.bundled.exam.examiner import Examiner
from recipes.bundled.exam.figure import Figure
from recipes.bundled.exam.judges import Wave
from recipes.bundled.exam.rendering import Codes
from recipes.bundled.exam.words import word_errors

TEXTS = {
    "beckett": "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better.",
    "two_cities": (
        "It was the best of times, it was the worst of times, it was the age of wisdom, it was the "
        "age of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was "
        "the season of light, it was the season of darkness, it was the spring of hope, it was the "
        "winter of despair, we had everything before us, we had nothing before us, we were all "
        "going direct to heaven, we were all going direct the other way. In short, the period was "
        "so far like the present period that some of its noisiest authorities insisted on its "
        "being received, for good or for evil, in the superlative degree of comparison only."
    ),
}
_RATE_HZ = 24_000
_PIECE_S = 12.0  # longest input of the recogniser
_LOOK_S = 4.0  # the cut is at the quietest moment of the last seconds of a piece
_QUIET_S = 0.1


def measure_human(examiner: Examiner) -> Iterator[Figure]:
    for name, text in TEXTS.items():
        sound = read_sound(examiner.judges.folder / "human" / f"{name}.wav")
        wave = resample(sound.wave, sound.rate_hz, _RATE_HZ).numpy()
        borders = cut_points(wave)
        codes = tuple(examiner.renderer.codec.encode(sound.wave, sound.rate_hz))
        said = _through_codec(examiner, codes)
        original = _transcribe(examiner, wave, borders)
        carried = _transcribe(examiner, said, borders)
        yield _figure(f"person, {name}: word error rate of the recording", original, text)
        yield _figure(f"person, {name}: word error rate after the codec", carried, text)


def _through_codec(examiner: Examiner, codes: Codes) -> Wave:
    (wave,) = examiner.render([codes])
    if examiner.renderer.rate_hz == _RATE_HZ:
        return wave
    return resample(torch.from_numpy(wave), examiner.renderer.rate_hz, _RATE_HZ).numpy()


def _transcribe(examiner: Examiner, wave: Wave, borders: list[int]) -> str:
    cut = np.split(wave, [border for border in borders if border < len(wave)])
    with examiner.stage("listening to people", len(cut)) as done:
        heard = []
        for piece in cut:
            heard.append(examiner.judges.transcribe(np.ascontiguousarray(piece), _RATE_HZ))
            done(1)
    return " ".join(heard)


def _figure(name: str, heard: str, text: str) -> Figure:
    wrong, meant = word_errors(heard, text)
    return Figure(
        name, 100 * wrong / meant, "%", 1, note=f"1 recording of {meant} words; heard: {heard}"
    )


def cut_points(wave: Wave) -> list[int]:
    """Returns the samples at which to cut, each at the quietest moment of the end of a piece."""
    borders, start = [], 0
    piece, look, quiet = (round(s * _RATE_HZ) for s in (_PIECE_S, _LOOK_S, _QUIET_S))
    while len(wave) - start > piece:
        first = start + piece - look
        loud = np.convolve(wave[first : start + piece] ** 2, np.ones(quiet), "same")
        start = first + int(loud.argmin())
        borders.append(start)
    return borders
