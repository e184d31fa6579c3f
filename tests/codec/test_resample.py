"""The resampler against the public one, and its live form against its whole form."""

import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from mosslive.codec.resample import ResampleStream, resample, resample_soxr
from mosslive.errors import MossliveError

GOLDEN = Path(__file__).parents[1] / "golden"
RATES = [(48000, 16000), (44100, 16000), (24000, 16000), (16000, 24000), (8000, 16000)]


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) / 10


@pytest.mark.parametrize(
    ("from_hz", "to_hz"),
    [(48000, 16000), (44100, 16000), (44100, 24000), (24000, 16000), (16000, 24000)],
)
def test_resampler_is_torchaudios(from_hz: int, to_hz: int) -> None:
    """Kernel, padding and length are those of torchaudio's default."""
    golden = load_file(GOLDEN / "front.safetensors")
    result = resample(golden[f"io.wave_{from_hz}_{to_hz}"], from_hz, to_hz)
    reference = golden[f"io.out_{from_hz}_{to_hz}"]
    assert result.shape == reference.shape
    assert float((result - reference).abs().max() / reference.abs().max()) < 1e-6


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    rates=st.sampled_from([*RATES, (16000, 16000), (22050, 24000)]),
    chunks=st.lists(st.integers(0, 1500), max_size=12),
)
def test_live_is_whole(rates: tuple[int, int], chunks: list[int]) -> None:
    """Joined pieces equal the whole for any chunk sizes, and what is out is never taken back."""
    wave = noise(2, sum(chunks))
    whole = resample(wave, *rates)
    assert whole.shape == (2, -(-wave.shape[1] * rates[1] // rates[0]))
    stream, came, joined = ResampleStream(*rates), 0, whole[:, :0]
    for chunk in chunks:
        joined = torch.cat((joined, stream.push(wave[:, came : came + chunk])), 1)
        came += chunk
        torch.testing.assert_close(joined, whole[:, : joined.shape[1]], rtol=0, atol=1e-6)
        # Holds back no more than it says.
        assert joined.shape[1] >= (came - stream.delay_samples) * rates[1] // rates[0]
    rest = stream.finish()
    joined = torch.cat((joined, rest), 1) if chunks else joined
    torch.testing.assert_close(joined, whole, rtol=0, atol=1e-6)


def test_long_sound_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut internally to spare memory, without a seam."""
    whole = resample(noise(5000), 48000, 16000)
    monkeypatch.setattr("mosslive.codec.resample._PIECE_TAPS", 5000)
    torch.testing.assert_close(resample(noise(5000), 48000, 16000), whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("from_hz", "to_hz"), RATES)
def test_a_tone_stays_a_tone(from_hz: int, to_hz: int) -> None:
    """Independent of the kernel: 1 kHz at one rate is 1 kHz, of the same phase, at the other."""
    tones = [
        torch.sin(2 * math.pi * 1000 * torch.arange(rate // 10, dtype=torch.float64) / rate)
        for rate in (from_hz, to_hz)
    ]
    result = resample(tones[0], from_hz, to_hz)
    assert result.dtype == torch.float32
    middle = slice(200, -200)  # the ends ring: outside there is silence
    assert float((result.double() - tones[1])[middle].abs().max()) < 2e-2


def test_rates_are_reduced() -> None:
    """48 to 16 kHz is 3 to 1, so a packet of 20 ms comes out at once but for some 20 samples."""
    assert ResampleStream(48000, 16000).delay_samples == 22
    assert torch.equal(resample(noise(999), 48000, 16000), resample(noise(999), 3, 1))


@pytest.mark.parametrize("rate", [0, -16000, 16000.0, True])
def test_bad_rates(rate: float) -> None:
    """A rate is a positive whole number; anything else is refused by name."""
    with pytest.raises(MossliveError, match="to_hz is"):
        ResampleStream(48000, rate)  # type: ignore[arg-type]


def test_rates_without_common_factor() -> None:
    """Rates that need a kernel of gigabytes raise, and the error names an alternative."""
    with pytest.raises(MossliveError, match="use resample_soxr"):
        resample(noise(10), 44101, 48000)


def test_bad_sound() -> None:
    """Integers, a bare number, other axes than before, and anything after the end are refused."""
    with pytest.raises(MossliveError, match=r"torch.int16 of shape \[4\]"):
        resample(torch.zeros(4, dtype=torch.int16), 48000, 16000)
    with pytest.raises(MossliveError, match=r"shape \[\]"):
        resample(torch.tensor(0.5), 48000, 16000)
    stream = ResampleStream(48000, 16000)
    stream.push(noise(2, 100))
    with pytest.raises(MossliveError, match="as in the first call"):
        stream.push(noise(3, 100))
    stream.finish()
    with pytest.raises(MossliveError, match="was finished"):
        stream.push(noise(2, 100))
    with pytest.raises(MossliveError, match="finished twice"):
        stream.finish()


def test_soxr_for_listening() -> None:
    """The library's own length and a clean tone, on any leading axes and at odd rates."""
    pytest.importorskip("soxr")
    time_s = torch.arange(44101) / 44101
    result = resample_soxr(torch.sin(2 * math.pi * 440 * time_s).expand(2, 1, -1), 44101, 24000)
    assert result.shape == (2, 1, 24000)
    wanted = torch.sin(2 * math.pi * 440 * torch.arange(24000) / 24000)
    assert float((result[1, 0] - wanted)[500:-500].abs().max()) < 1e-3


def test_soxr_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing optional package raises one clear sentence."""
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(MossliveError, match="pip install soxr"):
        resample_soxr(noise(100), 48000, 16000)
