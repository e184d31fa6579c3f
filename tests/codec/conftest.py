"""A random codec in the published layout, and speech-like sound, built once."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mosslive.codec import Codec, Sound, Voice, load_codec
from mosslive.codec.synth import synthesise_bigvgan, synthesise_codec


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


@pytest.fixture(scope="session")
def codec_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("codec")
    synthesise_bigvgan(out, "nano", seed=1)
    return synthesise_codec(out, "nano", seed=1)


@pytest.fixture(scope="session")
def flow_bigvgan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BigVGAN for the flow's mel."""
    return synthesise_bigvgan(tmp_path_factory.mktemp("vocoder"), "nano", seed=2, mel="flow")


@pytest.fixture(scope="session")
def codec(codec_folder: Path) -> Codec:
    """Runs every step in Python. Recording the steps takes seconds for each kind of stream."""
    return load_codec(codec_folder, trace_cpu_steps=False)


@pytest.fixture(scope="module")
def voices(codec: Codec) -> list[Voice]:
    return [
        codec.voice(Sound(torch.from_numpy(speech(length, 16000, seed)), 16000))
        for seed, length in enumerate((0.7, 1.3))
    ]
