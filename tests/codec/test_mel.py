"""Mel spectrograms against the public code's, and the properties that a stream relies on."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from mosslive.codec.mel import (
    BLOCK_SAMPLES,
    FLOW_MEL,
    MelSettings,
    floor_and_scale,
    floor_rises,
    log10_mel,
    log_mel,
    segment_log10_mel,
    slaney_filterbank,
)
from mosslive.errors import MossliveError

GOLDEN = Path(__file__).parents[1] / "golden"
LIMIT = 1e-5  # max |difference| / max |reference|, from the golden data's own notes
BIGVGAN: dict[str, Any] = {
    "sampling_rate": 22050,
    "n_fft": 1024,
    "win_size": 1024,
    "hop_size": 256,
    "num_mels": 80,
    "fmin": 0,
    "fmax": None,
}


def error(result: Tensor, reference: Tensor) -> float:
    assert result.shape == reference.shape
    return float((result - reference).abs().max() / reference.abs().max())


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) / 10


@pytest.mark.parametrize("index", [0, 1, 2])
def test_hearing_features_are_whispers(index: int) -> None:
    """Speech, a fade that reaches the floor, and silence give Whisper's features."""
    golden = load_file(GOLDEN / "logmel.safetensors")
    wave, reference = golden[f"io.wave{index}"], golden[f"io.feat{index}"]
    log10 = segment_log10_mel(wave, 128)
    assert error(floor_and_scale(log10, log10.amax()), reference) < LIMIT
    assert log10.shape[1] == 8 * int(golden[f"io.codes{index}"])


def test_filterbanks_are_librosas() -> None:
    """Both filter banks have Slaney scale and area, from float64, stored in float32."""
    hearing = load_file(GOLDEN / "logmel.safetensors")["io.mel_bank"]
    flow = load_file(GOLDEN / "flow_mel.safetensors")["io.mel_bank"]
    assert error(slaney_filterbank(16_000, 400, 128, 0, 8000), hearing) < 1e-6
    assert error(slaney_filterbank(24_000, 1920, 80, 0, 8000), flow) < 1e-6


@pytest.mark.parametrize("index", [0, 1, 2])
def test_flow_mel_is_matchas(index: int) -> None:
    """The prompt's mel equals the reference, also where the floor acts, and for three frames."""
    golden = load_file(GOLDEN / "flow_mel.safetensors")
    result = log_mel(golden[f"io.wave{index}"], FLOW_MEL)
    assert error(result, golden[f"io.mel{index}"]) < LIMIT


@pytest.mark.parametrize(("name", "rate", "bands"), [("22k80", 22050, 80), ("24k100", 24000, 100)])
def test_bigvgan_mel_is_bigvgans(name: str, rate: int, bands: int) -> None:
    """Mel settings are read from the config; an fmax of null means half the sample rate."""
    golden = load_file(GOLDEN / "bigvgan_mel.safetensors")
    mel = MelSettings.from_bigvgan(BIGVGAN | {"sampling_rate": rate, "num_mels": bands})
    assert error(log_mel(golden[f"io.wave_{name}"], mel), golden[f"io.mel_{name}"]) < LIMIT


def test_bigvgan_fmax_is_obeyed() -> None:
    """A checkpoint that differs in fmax alone has another mel."""
    narrow = MelSettings.from_bigvgan(BIGVGAN | {"fmax": 8000})
    assert narrow.fmax_hz == 8000
    assert not torch.equal(
        log_mel(noise(4096), narrow), log_mel(noise(4096), MelSettings.from_bigvgan(BIGVGAN))
    )


@pytest.mark.parametrize("samples", [0, 1, 1279, 1280, 1281, 16000])
def test_eight_frames_per_block(samples: int) -> None:
    """n samples, 0 included, give 8 · ceil(n / 1280) frames: eight per code."""
    assert segment_log10_mel(noise(samples), 128).shape == (128, 8 * -(-samples // BLOCK_SAMPLES))


def test_leading_axes_are_a_batch() -> None:
    """Rows of a batch are independent, for any leading axes."""
    waves = noise(2, 3, 4000)
    hearing, flow = segment_log10_mel(waves, 40), log_mel(waves, FLOW_MEL)
    assert hearing.shape == (2, 3, 40, 32)
    assert flow.shape == (2, 3, 80, 8)
    torch.testing.assert_close(hearing[1, 2], segment_log10_mel(waves[1, 2], 40))
    torch.testing.assert_close(flow[1, 2], log_mel(waves[1, 2], FLOW_MEL))


@settings(derandomize=True, deadline=None, max_examples=30)
@given(first=st.integers(0, 40), count=st.integers(1, 20))
def test_a_frame_is_local(first: int, count: int) -> None:
    """A frame is the same whatever is analysed with it, also far below its loudest band, where a
    float32 transform is not: streaming rests on it."""
    framed = noise(10_000) / 1e4 + torch.sin(torch.arange(10_000) * 0.3)
    part = framed[160 * first : 160 * (first + count - 1) + 400]
    whole = log10_mel(framed, 128)[:, first : first + count]
    torch.testing.assert_close(log10_mel(part, 128), whole, rtol=0, atol=1e-6)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    lowest=st.floats(-10, 4, width=32),
    loudest=st.floats(-10, 4, width=32),
    rise=st.floats(0, 12, width=32),
)
def test_floor_rises_means_other_features(lowest: float, loudest: float, rise: float) -> None:
    """The test for a changed frame agrees with the features themselves, at the borders too."""
    low, old = torch.tensor(lowest), torch.tensor(loudest)
    new = old + rise
    differ = torch.maximum(low, old - 8) != torch.maximum(low, new - 8)
    assert bool(floor_rises(low, old, new)) == bool(differ)


@pytest.mark.parametrize("mel", [FLOW_MEL, MelSettings.from_bigvgan(BIGVGAN)])
def test_too_short_for_a_mel(mel: MelSettings) -> None:
    """The mirrored ends need 721 and 385 samples; fewer are an error that says so."""
    least = {1920: 721, 1024: 385}[mel.n_fft]
    assert log_mel(noise(least), mel).shape[-1] == least // mel.hop_samples
    with pytest.raises(MossliveError, match=f"{least - 1} samples.*allowed: {least}"):
        log_mel(noise(least - 1), mel)


@pytest.mark.parametrize("dtype", [torch.int16, torch.float64])
def test_sound_of_another_type(dtype: torch.dtype) -> None:
    """Integers would be taken for full-scale floats: refused, not guessed."""
    with pytest.raises(MossliveError, match=r"allowed: torch\.float32"):
        log_mel(noise(4000).to(dtype), FLOW_MEL)
    with pytest.raises(MossliveError, match=r"allowed: torch\.float32"):
        log10_mel(noise(4000).to(dtype), 128)


def test_bigvgan_config_faults() -> None:
    """A config this mel cannot follow is refused, with the field's name."""
    with pytest.raises(MossliveError, match="win_size is 512; allowed: n_fft = 1024"):
        MelSettings.from_bigvgan(BIGVGAN | {"win_size": 512})
    with pytest.raises(MossliveError, match="hop_size missing"):
        MelSettings.from_bigvgan({k: v for k, v in BIGVGAN.items() if k != "hop_size"})
