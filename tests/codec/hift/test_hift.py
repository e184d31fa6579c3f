"""HiFT against the published code's results, its own formulas, and input it must refuse."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mosslive.codec.hift import Hift, HiftSettings
from mosslive.errors import MossliveError

FILE = load_file(Path(__file__).parents[2] / "golden" / "hift.safetensors")
WEIGHTS = {name[2:]: tensor for name, tensor in FILE.items() if name.startswith("w.")}
IO = {name[3:]: tensor[None] for name, tensor in FILE.items() if name.startswith("io.")}
S = 480  # samples per frame


@pytest.fixture(scope="module")
def hift() -> Hift:
    return Hift.from_tensors(WEIGHTS)


@pytest.fixture(scope="module")
def exact() -> Hift:
    """The same network in float64, where properties hold to many digits."""
    return Hift.from_tensors(WEIGHTS).double()


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def error(found: Tensor, wanted: Tensor) -> float:
    """As the golden file states its limits."""
    assert found.shape == wanted.shape
    return float((found - wanted).abs().max() / wanted.abs().max())


def test_golden_f0(hift: Hift) -> None:
    """The pitch equals the golden values within the limit of the golden file."""
    assert error(hift.f0(IO["mel"]), IO["f0"]) < 5e-6


def test_golden_source(hift: Hift) -> None:
    """The source of a given pitch equals the reference, with and without noise; two frames are
    unvoiced."""
    assert error(hift.source(IO["f0"], IO["noise"]), IO["source"]) < 5e-4
    assert error(hift.source(IO["f0"]), IO["source_zero_noise"]) < 5e-4


def test_golden_decode(hift: Hift) -> None:
    """The wave of a given source equals the reference."""
    cached = IO["source_zero_noise"].clone()
    cached[:, :3840] = IO["cache_source"]
    assert error(hift.decode(IO["mel"], IO["source"]), IO["wave"]) < 1e-4
    assert error(hift.decode(IO["mel"], IO["source_zero_noise"]), IO["wave_zero_noise"]) < 1e-4
    assert error(hift.decode(IO["mel"], cached), IO["wave_zero_noise_cached"]) < 1e-4


def test_golden_whole(hift: Hift) -> None:
    """Mel to samples equals the reference: with noise, without, and with a cached source."""
    assert error(hift(IO["mel"], IO["noise"]).wave, IO["wave"]) < 5e-3
    assert error(hift(IO["mel"]).wave, IO["wave_zero_noise"]) < 5e-3
    wave, source = hift(IO["mel"], None, IO["cache_source"])
    assert error(wave, IO["wave_zero_noise_cached"]) < 5e-3
    assert torch.equal(source[:, :3840], IO["cache_source"])
    assert error(source[:, 3840:], IO["source_zero_noise"][:, 3840:]) < 5e-4


def test_published_inventory() -> None:
    """At full size there are 328 tensors and 20 821 295 values, the lengths of the weight-normed
    layers counted; everything but five kinds of tensors is weight-normed."""
    with torch.device("meta"):
        tensors = Hift(HiftSettings()).state_dict()
    plain = ("source_downs", "m_source", "f0_predictor.classifier")
    normed = [n for n in tensors if n.endswith(".weight") and not n.startswith(plain)]
    assert len(tensors) + len(normed) == 328
    lengths = sum(tensors[name].shape[0] for name in normed)
    assert sum(tensor.numel() for tensor in tensors.values()) + lengths == 20_821_295


def test_sizes_come_from_the_tensors(hift: Hift) -> None:
    """No width of the small model is the published one; folded tensors load as well as normed."""
    settings = hift.settings
    assert (settings.mel_bins, settings.channels, settings.f0_channels) == (80, 48, 32)
    assert (settings.harmonics, settings.samples_per_frame) == (8, S)
    again = Hift.from_tensors(hift.state_dict())
    assert torch.equal(again(IO["mel"]).wave, hift(IO["mel"]).wave)


def test_other_harmonics_and_bins() -> None:
    """A checkpoint of other widths needs no setting; kernels and rates do, and are then used."""
    settings = HiftSettings(
        mel_bins=5,
        channels=4,
        f0_channels=3,
        harmonics=2,
        upsample_rates=(4, 2),
        upsample_kernels=(8, 4),
        source_kernels=(3, 5),
        n_fft=8,
        hop_samples=2,
    )
    tensors = {n: random(*t.shape) for n, t in Hift(settings).state_dict().items()}
    hift = Hift.from_tensors(tensors, replace(settings, mel_bins=80, harmonics=8, channels=512))
    assert hift.settings == settings
    wave, source = hift(random(2, 5, 3), torch.Generator())
    assert wave.shape == source.shape == (2, 3 * 16)


@pytest.mark.parametrize("frames", [1, 2, 5])
def test_source_formula(exact: Hift, frames: int) -> None:
    """The source equals one formula, sample by sample: the phase is flat at both ends and linear
    between middles of frames, voicing switches at borders; 10 Hz itself is unvoiced."""
    pitch = torch.tensor([180.0, 10.0, 3100.0, 10.001, 95.5], dtype=torch.float64)[:frames]
    noise = random(1, S * frames, 9).double()
    weight, bias = (WEIGHTS[f"m_source.l_linear.{n}"].double() for n in ("weight", "bias"))
    harmonics = torch.arange(1, 10, dtype=torch.float64)
    sums = ((pitch[:, None] * harmonics / 24000) % 1).cumsum(0) * (2 * math.pi * S)
    wanted = []
    for n in range(S * frames):
        position = max(0.0, (n + 0.5) / S - 0.5)
        i, a = int(position), position - int(position)
        phase = (1 - a) * sums[i] + a * sums[min(i + 1, frames - 1)]
        voiced = bool(pitch[n // S] > 10)
        sines = 0.1 * phase.sin() * voiced + noise[0, n] * (0.003 if voiced else 0.1 / 3)
        wanted.append(torch.tanh(weight[0] @ sines + bias[0]))
    found = exact.source(pitch[None], noise)[0]
    torch.testing.assert_close(found, torch.stack(wanted), rtol=0, atol=1e-9)


def test_phase_is_rounded_to_float32(hift: Hift) -> None:
    """The rounding of the float32 phase is part of the reference; after 500 frames it
    is some 1e-3 from the exact source, not zero and not large."""
    pitch = 150 + 60 * torch.linspace(0, 20, 500).sin()[None]
    exact = Hift.from_tensors(WEIGHTS).double().source(pitch)
    distance = float((hift.source(pitch) - exact).abs().max() / exact.abs().max())
    assert 1e-5 < distance < 5e-2


@pytest.mark.parametrize(("log_magnitude", "magnitude"), [(1.0, math.e), (4.7, 100), (1e30, 100)])
def test_lines_are_bounded(hift: Hift, log_magnitude: float, magnitude: float) -> None:
    """The magnitude of a spectral line is at most 100. Only the constant line here, so each
    frame of 16 is magnitude/16 · Hann, and hops of 4 sum up to 2 windows over 1.5 squared ones."""
    tensors = hift.state_dict() | {"conv_post.weight": torch.zeros(18, 6, 7)}
    tensors["conv_post.bias"] = torch.tensor([log_magnitude, *[-1e30] * 8, *[0.0] * 9])
    loud = Hift.from_tensors(tensors, HiftSettings(audio_limit=1e3))
    wave = loud(random(1, 80, 2)).wave[0, 8:-8]
    torch.testing.assert_close(wave, torch.full_like(wave, magnitude / 16 * 2 / 1.5))


def moved(run: Callable[[Tensor], Tensor], x: Tensor, first: int) -> tuple[int, int]:
    """First and last output sample that changes with x[..., first]."""
    other = x.clone()
    other[..., first] += 1
    changed = (run(other) != run(x)).any(0).nonzero()[:, 0]
    return int(changed[0]), int(changed[-1])


def test_reach(exact: Hift) -> None:
    """The receptive field: mel 13.13 frames to each side in the main path, a source sample
    6840 samples, and through the pitch 9480 samples ahead. Output further ahead is settled."""
    mel = random(1, 80, 60).double()
    source = 0.1 * random(1, S * 60, seed=1).double()
    first, last = moved(lambda x: exact.decode(x, source), mel, 30)
    assert 30 * S - first <= 6303 < 13.2 * S
    assert last - 31 * S <= 6303
    assert first < 30 * S - 13 * S + S
    assert last > 31 * S + 12 * S
    first, last = moved(lambda x: exact.decode(mel, x), source, 30 * S)
    assert 6700 < 30 * S - first <= 6840
    assert 6700 < last - 30 * S <= 6840
    first, _ = moved(lambda x: exact(x).wave, mel, 30)
    assert 9300 < 30 * S - first <= 9480


def test_rows_do_not_meet(exact: Hift) -> None:
    """Each row of a batch gives what it gives alone."""
    mel, noise = random(3, 80, 6).double(), random(3, S * 6, 9, seed=1).double()
    cached = random(3, 700, seed=2).double()
    together = exact(mel, noise, cached)
    for row in range(3):
        one = slice(row, row + 1)
        alone = exact(mel[one], noise[one], cached[one])
        torch.testing.assert_close(together.wave[one], alone.wave, rtol=0, atol=1e-9)
        torch.testing.assert_close(together.source[one], alone.source, rtol=0, atol=1e-12)


def test_noise_by_generator(hift: Hift) -> None:
    """A call draws rand [9], randn [480T, 9] and randn [480T], so that a seed gives
    the published noise also in the second call; rows of a batch draw one after another."""
    ours, theirs = (torch.Generator().manual_seed(7) for _ in range(2))
    for frames in (3, 2):
        mel = random(2, 80, frames)
        wave, source = hift(mel, ours)
        rows = []
        for _ in range(2):
            torch.rand(1, 9, generator=theirs)
            rows.append(torch.randn(S * frames, 9, generator=theirs))
            torch.randn(1, S * frames, 1, generator=theirs)
        given = hift(mel, torch.stack(rows))
        assert torch.equal(source, given.source)
        assert torch.equal(wave, given.wave)
    assert torch.equal(ours.get_state(), theirs.get_state())


def test_no_global_randomness() -> None:
    """Loading and decoding do not change torch's global generator."""
    before = torch.get_rng_state()
    Hift.from_tensors(WEIGHTS)(IO["mel"], torch.Generator())
    assert torch.equal(torch.get_rng_state(), before)


def test_low_precision_leaves_the_pitch_alone(hift: Hift) -> None:
    """Under autocast only the network is coarse; weights in half precision are refused, for the
    pitch would be made from them."""
    pitch, source = hift.f0(IO["mel"]), hift.source(IO["f0"], IO["noise"])
    with torch.autocast("cpu", torch.bfloat16):
        assert not torch.equal(hift.f0(IO["mel"].bfloat16()), pitch)  # rounding would show
        assert torch.equal(hift.f0(IO["mel"]), pitch)
        assert torch.equal(hift.source(IO["f0"], IO["noise"]), source)
        coarse = hift.decode(IO["mel"], IO["source"])
    assert coarse.dtype == torch.float32
    assert error(coarse, IO["wave"]) > 1e-4
    assert (coarse - IO["wave"]).square().mean() < 0.05 * IO["wave"].square().mean()
    with pytest.raises(MossliveError, match="must stay in float32"):
        Hift.from_tensors(WEIGHTS).bfloat16().f0(IO["mel"])


def test_half_precision_file_is_widened() -> None:
    """A checkpoint stored in bf16 runs in float32."""
    hift = Hift.from_tensors({name: tensor.bfloat16() for name, tensor in WEIGHTS.items()})
    assert {tensor.dtype for tensor in hift.state_dict().values()} == {torch.float32}
    assert hift(IO["mel"]).wave.isfinite().all()


@pytest.mark.parametrize("frames", [1, 2])
def test_shortest_mels(exact: Hift, frames: int) -> None:
    """One frame is enough: 480 samples, not silent."""
    wave, source = exact(random(1, 80, frames).double())
    assert wave.shape == source.shape == (1, S * frames)
    assert wave.isfinite().all()
    assert wave.abs().max() > 0


@pytest.mark.parametrize("level", [0.0, -11.5129, 20.0, -1e3, 1e6, 1e20])
def test_extreme_mels(hift: Hift, level: float) -> None:
    """Silence, clipping and nonsense give finite samples within the limit."""
    mel = torch.cat((torch.full((1, 80, 3), level), level * random(1, 80, 3)), 2)
    wave, source = hift(mel, torch.Generator())
    assert wave.isfinite().all()
    assert source.isfinite().all()
    assert wave.abs().max() <= 0.99
    assert source.abs().max() <= 1


def operations(run: Callable[[], object]) -> set[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        run()
    return {event.key for event in seen.key_averages()}


def test_nothing_is_read_back(hift: Hift) -> None:
    """Rule of the hot path: no value decides what is computed, so that graphs can be recorded."""
    stalls = {"aten::_local_scalar_dense", "aten::nonzero"}
    assert stalls & operations(lambda: bool(IO["f0"].max() > 0))
    found = operations(lambda: hift(IO["mel"], IO["noise"], IO["cache_source"]))
    assert "aten::cumsum" in found
    assert not stalls & found


def test_everything_follows_the_module() -> None:
    """The window is moved with the weights: a network on another device makes nothing here."""
    hift = Hift.from_tensors(WEIGHTS).to("meta")
    wave = hift.decode(torch.empty(2, 80, 3, device="meta"), torch.empty(2, 3 * S, device="meta"))
    assert wave.device.type == "meta"
    assert wave.shape == (2, 3 * S)


@pytest.mark.parametrize(
    "call",
    [
        lambda h: h.f0(torch.zeros(80, 4)),
        lambda h: h.f0(torch.zeros(1, 79, 4)),
        lambda h: h.f0(torch.zeros(1, 80, 0)),
        lambda h: h.source(torch.zeros(4)),
        lambda h: h.source(torch.zeros(1, 0)),
        lambda h: h.source(torch.zeros(1, 4), torch.zeros(1, 4 * S, 8)),
        lambda h: h.source(torch.zeros(1, 4), torch.zeros(2, 4 * S, 9)),
        lambda h: h.source(torch.zeros(1, 4), None, -1),
        lambda h: h.source(torch.zeros(1, 4), None, 4 * S + 1),
        lambda h: h.decode(torch.zeros(1, 80, 4), torch.zeros(1, 4 * S - 1)),
        lambda h: h.decode(torch.zeros(2, 80, 4), torch.zeros(1, 4 * S)),
        lambda h: h.decode(torch.zeros(1, 4, 80), torch.zeros(1, 4 * S)),
        lambda h: h(torch.zeros(1, 80, 4), torch.zeros(4 * S, 9)),
        lambda h: h(torch.zeros(1, 80, 4), None, torch.zeros(1, 4 * S + 1)),
        lambda h: h(torch.zeros(2, 80, 4), None, torch.zeros(1, 8)),
        lambda h: h(torch.zeros(1, 80, 4), None, torch.zeros(8)),
    ],
)
def test_wrong_shapes(hift: Hift, call: Callable[[Hift], object]) -> None:
    """Each argument of the wrong size is named with what is allowed."""
    with pytest.raises(MossliveError, match=r"allowed: (\[|0 to)"):
        call(hift)


def without(name: str) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in WEIGHTS.items() if key != name}


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (without("conv_post.bias"), "no tensor conv_post.bias"),
        (without("m_source.l_linear.weight"), "no tensor m_source.l_linear.weight"),
        (without("ups.1.parametrizations.weight.original0"), "weight norm of ups.1.weight"),
        (WEIGHTS | {"mean": torch.zeros(1)}, "knows no tensor mean"),
        (WEIGHTS | {"source_downs.0.weight": torch.zeros(24, 18, 15)}, "source_downs.0.weight"),
        (WEIGHTS | {"f0_predictor.classifier.weight": torch.zeros(1, 31)}, "f0_predictor"),
        (WEIGHTS | {"m_source.l_linear.weight": torch.zeros(9)}, "l_linear.weight of 2 axes"),
        ({}, "no tensor conv_pre.weight"),
    ],
)
def test_checkpoints_that_do_not_add_up(tensors: dict[str, Tensor], words: str) -> None:
    """A missing, unknown or contradicting tensor is named; nothing is loaded in part."""
    with pytest.raises(MossliveError, match=words):
        Hift.from_tensors(tensors)


def test_settings_that_do_not_fit() -> None:
    """Settings are checked in themselves and against the tensors."""
    with pytest.raises(MossliveError, match="per rate"):
        HiftSettings(upsample_rates=(8, 5))
    with pytest.raises(MossliveError, match="even numbers"):
        HiftSettings(upsample_kernels=(16, 10, 7))
    with pytest.raises(MossliveError, match="halved"):
        HiftSettings(channels=500)
    with pytest.raises(MossliveError, match="multiple of the hop"):
        HiftSettings(hop_samples=5)
    with pytest.raises(MossliveError, match=r"resblocks.1.*\[24, 24, 7\]; allowed: \[24, 24, 5\]"):
        Hift.from_tensors(WEIGHTS, HiftSettings(resblock_kernels=(3, 5, 11)))
