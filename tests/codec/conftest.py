"""Speech-like sound, and two voices."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mosslive.codec import Codec, Sound, Voice


def speech(seconds: float, rate_hz: int, seed: int = 0) -> NDArray[np.float32]:
    """Harmonics that glide and swell like syllables, and a little noise."""
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    pitch = 2 * np.pi * np.cumsum(130 + 40 * np.sin(2 * np.pi * 0.7 * time)) / rate_hz
    tone = sum(np.sin(n * pitch) / n for n in range(1, 9))
    loud = 0.05 + np.clip(np.sin(2 * np.pi * 2.5 * time + seed), 0, 1)
    noise = np.random.default_rng(seed).normal(0, 0.01, len(time))
    wave: NDArray[np.float32] = (0.1 * loud * tone + noise).astype(np.float32)
    return wave


def some_codes(count: int, seed: int) -> list[int]:
    return [(7 * n + 31 * seed) % 500 for n in range(count)]


@pytest.fixture(scope="module")
def voices(codec: Codec) -> list[Voice]:
    return [
        codec.voice(Sound(torch.from_numpy(speech(length, 16000, seed)), 16000))
        for seed, length in enumerate((0.7, 1.3))
    ]
