"""The filter bank against the published front end, and the properties that its steps imply."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from mosslive.codec.fbank import BANDS, fbank
from mosslive.errors import MossliveError

GOLDEN = Path(__file__).parents[1] / "golden" / "front.safetensors"
SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)


def noise(samples: int, seed: int = 0) -> Tensor:
    return 0.3 * torch.randn(samples, generator=torch.Generator().manual_seed(seed))


def test_published_front_end() -> None:
    """Golden pass limit: 1e-5 of the largest value."""
    golden = load_file(GOLDEN)
    wanted, found = golden["io.fbank"], fbank(golden["io.fbank_wave"])
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_one_frame_by_its_formula() -> None:
    """The formula in float64, sum by sum: offset, pre-emphasis, window, spectrum, triangles."""
    wave = noise(400)
    x = [float(sample) for sample in wave]
    x = [sample - math.fsum(x) / 400 for sample in x]
    x = [x[n] - 0.97 * x[max(n - 1, 0)] for n in range(400)]
    x = [x[n] * (0.5 - 0.5 * math.cos(2 * math.pi * n / 399)) ** 0.85 for n in range(400)]
    padded = torch.tensor(x + [0.0] * 112, dtype=torch.float64)
    angle = torch.outer(torch.arange(256), torch.arange(512)) * (-2 * math.pi / 512)
    power = (angle.double().cos() @ padded) ** 2 + (angle.double().sin() @ padded) ** 2

    def mel(hz: float) -> float:
        return 1127 * math.log(1 + hz / 700)

    found = fbank(wave)[0]
    step = (mel(8000) - mel(20)) / 81
    for band in range(BANDS):
        centre = mel(20) + (band + 1) * step
        heights = [max(0.0, 1 - abs(mel(31.25 * k) - centre) / step) for k in range(256)]
        energy = sum(h * float(p) for h, p in zip(heights, power, strict=True))
        assert float(found[band]) == pytest.approx(math.log(energy), abs=2e-3)


@SETTINGS
@given(samples=st.integers(400, 5000), seed=st.integers(0, 9))
def test_only_whole_frames(samples: int, seed: int) -> None:
    """1 + floor((N - 400) / 160) frames; samples after the last whole one have no effect."""
    wave = noise(samples, seed)
    features = fbank(wave)
    assert features.shape == (1 + (samples - 400) // 160, BANDS)
    used = 400 + 160 * (len(features) - 1)
    assert torch.equal(fbank(wave[:used]), features)


@SETTINGS
@given(samples=st.integers(800, 4000), data=st.data())
def test_later_sound_does_not_change_earlier_frames(samples: int, data: st.DataObject) -> None:
    """Frame t knows samples 160 t to 160 t + 399 and no other."""
    changed_at = data.draw(st.integers(400, samples - 1))
    wave = noise(samples)
    other = torch.cat((wave[:changed_at], noise(samples - changed_at, seed=1)))
    kept = 1 + (changed_at - 400) // 160
    before, after = fbank(wave), fbank(other)
    torch.testing.assert_close(after[:kept], before[:kept], rtol=0, atol=1e-4)
    if len(before) > kept and samples - changed_at > 160:
        assert not torch.allclose(after[kept:], before[kept:], atol=1e-2)


def test_loudness_is_an_offset() -> None:
    """Power and natural logarithm: half as loud is 2 ln 2 less in every band, above the floor."""
    wave = noise(4000)
    torch.testing.assert_close(
        fbank(wave) - fbank(wave / 2), torch.full((23, BANDS), 2 * math.log(2)), rtol=0, atol=1e-5
    )


def test_constant_offset_is_removed() -> None:
    """Each frame's mean is removed first: a constant offset has no effect."""
    wave = noise(4000)
    torch.testing.assert_close(fbank(wave + 0.5), fbank(wave), rtol=0, atol=5e-3)


@pytest.mark.parametrize("level", [0.0, 0.25])
def test_silence_is_the_floor(level: float) -> None:
    """No energy is ln(1.19e-7), never -inf; a constant is as silent as zero."""
    features = fbank(torch.full((1000,), level))
    assert torch.equal(features, torch.full((4, BANDS), 1.1920929e-07).log())


def test_leading_axes_and_precision() -> None:
    """Several waves in one call give what each gives alone; other float types are taken."""
    waves = torch.stack([noise(1300, seed) for seed in range(6)])
    batch = fbank(waves.view(2, 3, -1)).flatten(0, 1)
    for wave, features in zip(waves, batch, strict=True):
        torch.testing.assert_close(features, fbank(wave), rtol=0, atol=1e-4)
    assert torch.equal(fbank(waves[0].double()), fbank(waves[0]))


@pytest.mark.parametrize("shape", [(), (0,), (399,), (2, 399)])
def test_less_than_a_frame_is_refused(shape: tuple[int, ...]) -> None:
    """An error that names the length needed, not an empty result that becomes NaN later."""
    with pytest.raises(MossliveError, match="shorter than one filter-bank frame of 400 samples"):
        fbank(torch.zeros(shape))
