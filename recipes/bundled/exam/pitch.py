"""Pitch and length of a reply, compared with those of the synthesiser's answer.

Pitch is the median over voiced frames, by autocorrelation: simple, and the same for both sides.
"""

import numpy as np
from numpy.typing import NDArray

_LOWEST_HZ, _HIGHEST_HZ = 70.0, 400.0
_FRAME_S, _HOP_S = 0.04, 0.02
_PERIODIC = 0.5  # share of a frame's energy that must repeat after one period
_LOUD = 0.1  # of the loudest frame's level
PITCH_RANGE = 0.85, 1.18  # of the synthesiser's pitch in the same sentence
LENGTH_RANGE = 0.67, 1.5  # of its length


def pitch_hz(wave: NDArray[np.float32], rate_hz: int) -> float:
    """Returns the median pitch of the voiced frames, or 0 if none is voiced."""
    frame, hop = round(_FRAME_S * rate_hz), round(_HOP_S * rate_hz)
    if len(wave) < frame:
        return 0.0
    frames = np.lib.stride_tricks.sliding_window_view(wave, frame)[::hop].astype(np.float64)
    frames = frames - frames.mean(1, keepdims=True)
    level = np.sqrt((frames**2).mean(1))
    frames = frames[level > _LOUD * level.max()] if level.max() > 0 else frames[:0]
    if not len(frames):
        return 0.0
    spectra = np.fft.rfft(frames * np.hanning(frame), 2 * frame)
    window = np.fft.irfft(np.abs(np.fft.rfft(np.hanning(frame), 2 * frame)) ** 2)[:frame]
    repeats = np.fft.irfft(np.abs(spectra) ** 2)[:, :frame] / np.maximum(window, 1e-9)
    shortest, longest = int(rate_hz / _HIGHEST_HZ), int(rate_hz / _LOWEST_HZ)
    likeness = repeats[:, shortest : longest + 1] / np.maximum(repeats[:, :1], 1e-12)
    best = likeness.max(1)
    # The shortest period that repeats nearly as well as any, because multiples repeat, too.
    first = (likeness > 0.9 * best[:, None]).argmax(1)
    rows = np.arange(len(first))
    while True:  # climbs from the edge of the peak to its top
        after = np.minimum(first + 1, likeness.shape[1] - 1)
        rises = likeness[rows, after] > likeness[rows, first]
        if not rises.any():
            break
        first = np.where(rises, after, first)
    voiced = best > _PERIODIC
    return float(np.median(rate_hz / (first[voiced] + shortest))) if voiced.any() else 0.0


def within(value: float, wanted: float, allowed: tuple[float, float]) -> bool:
    return allowed[0] * wanted <= value <= allowed[1] * wanted
