"""Converts synthesised sound to the corpus format: 24 kHz, trimmed, one loudness.

Changes timing and level only, once. Training varies vocal tract, room, microphone and noise for
every batch (`augment`). Uses numpy only, one utterance at a time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recipes.bundled.corpus import SAMPLE_RATE_HZ

LOUDNESS_DBFS = -23.0  # root mean square over what is not silence
PEAK = 0.97
_FRAME = SAMPLE_RATE_HZ // 100
_QUIET_DB = -42.0  # below the loudest frame: silence
_LEAD_S, _TAIL_S = 0.06, 0.12
_GUARD = 256  # silence around the sound, so that the ends do not wrap into one another


def change_rate(sound: NDArray[np.float32], from_hz: float, to_hz: float) -> NDArray[np.float32]:
    """Resamples by Fourier transform, band-limited; the lengths fit to one part in a thousand."""
    if sound.size == 0:
        return sound
    padded = np.pad(sound, _GUARD)
    size = round(padded.size * to_hz / from_hz)
    spectrum = np.fft.rfft(padded)
    bins = size // 2 + 1
    if bins <= spectrum.size:
        spectrum = spectrum[:bins]
    else:
        spectrum = np.pad(spectrum, (0, bins - spectrum.size))
    changed = np.fft.irfft(spectrum, size) * (size / padded.size)
    guard = round(_GUARD * to_hz / from_hz)
    return changed[guard : size - guard].astype(np.float32)


def trim(sound: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cuts silence at both ends to a short lead and tail, so that all voices start alike."""
    loud = np.flatnonzero(_frame_db(sound) > _QUIET_DB)
    if loud.size == 0:
        return sound[:0]
    first = int(loud[0]) * _FRAME - round(_LEAD_S * SAMPLE_RATE_HZ)
    last = int(loud[-1] + 1) * _FRAME + round(_TAIL_S * SAMPLE_RATE_HZ)
    lead, tail = max(0, -first), max(0, last - sound.size)
    return np.pad(sound[max(0, first) : last], (lead, tail))


def level(sound: NDArray[np.float32]) -> NDArray[np.int16]:
    """Scales to the common loudness, or less where a peak would clip."""
    db = _frame_db(sound)
    loud = np.repeat(db > _QUIET_DB, _FRAME)
    voiced = sound[: loud.size][loud]
    if voiced.size == 0:
        return np.zeros(0, np.int16)
    gain = 10 ** (LOUDNESS_DBFS / 20) / float(np.sqrt(np.mean(voiced**2)))
    gain = min(gain, PEAK / float(np.abs(sound).max()))
    return np.round(sound * gain * 32767).astype(np.int16)


def _frame_db(sound: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the power of each 10 ms, in dB below the loudest: [frames]; empty for no sound."""
    frames = sound[: sound.size // _FRAME * _FRAME].reshape(-1, _FRAME)
    if frames.size == 0:
        return np.zeros(0, np.float32)
    power = np.mean(frames**2, axis=1) + 1e-14
    quietest = 1e-8  # rounding noise is not speech
    relative: NDArray[np.float32] = 10 * np.log10(power / max(float(power.max()), quietest))
    return relative.astype(np.float32)
