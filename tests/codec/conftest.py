"""A random codec that is quick, speech-like sound, and two voices."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray

from mosslive.checkpoint.codec import FLOW_CONFIG, FLOW_FOLDER, VOCODER_FILE
from mosslive.codec import Codec, Sound, Voice
from mosslive.codec.hift import Hift, HiftSettings
from mosslive.codec.random_networks import CODEC_SIZES, random_tensors
from mosslive.codec.synth import hift_config, synthesise_codec


def speech(seconds: float, rate_hz: int, seed: int = 0) -> NDArray[np.float32]:
    """Harmonics that glide and swell like syllables, and a little noise."""
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    pitch = 2 * np.pi * np.cumsum(130 + 40 * np.sin(2 * np.pi * 0.7 * time)) / rate_hz
    tone = sum(np.sin(n * pitch) / n for n in range(1, 9))
    loud = 0.05 + np.clip(np.sin(2 * np.pi * 2.5 * time + seed), 0, 1)
    noise = np.random.default_rng(seed).normal(0, 0.01, len(time))
    wave: NDArray[np.float32] = (0.1 * loud * tone + noise).astype(np.float32)
    return wave


def quick_codec(out: Path, seed: int = 0) -> Path:
    """Writes the nano codec to `out/codec` and returns it. Its flow solves in two steps instead of
    the published ten, and the blocks of its HiFT have two layers instead of nine: a reply takes a
    third of the time."""
    folder = synthesise_codec(out, "nano", seed)
    decoder = folder / FLOW_FOLDER
    config = yaml.safe_load((decoder / FLOW_CONFIG).read_text(encoding="utf-8"))
    config["flow"]["decoder"]["cfm_params"]["content"]["n_timesteps"] = 2
    size = CODEC_SIZES["nano"]
    hift = HiftSettings(
        channels=size.hift_channels,
        f0_channels=size.f0_channels,
        resblock_kernels=(3, 5),
        dilations=(1,),
    )
    config["hift"] = hift_config(hift)
    (decoder / FLOW_CONFIG).write_text(yaml.safe_dump(config), encoding="utf-8")
    with torch.device("meta"):
        network = Hift(hift)
    tensors = random_tensors(network, f"{seed}:quick")
    tensors["f0_predictor.classifier.bias"] = torch.tensor([140.0])  # Hz: a voice
    torch.save(tensors, decoder / VOCODER_FILE)
    return folder


def some_codes(count: int, seed: int) -> list[int]:
    return [(7 * n + 31 * seed) % 500 for n in range(count)]


@pytest.fixture(scope="module")
def voices(codec: Codec) -> list[Voice]:
    return [
        codec.voice(Sound(torch.from_numpy(speech(length, 16000, seed)), 16000))
        for seed, length in enumerate((0.7, 1.3))
    ]
