"""BigVGAN against the public reference's values, and what must hold for any size of the family.

The models and helpers here serve the other BigVGAN tests too.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from mosslive.checkpoint.bigvgan import GENERATOR_FILE, folded_shapes, stored_shapes
from mosslive.codec.bigvgan import BigVgan, load_bigvgan, reach_of
from mosslive.codec.bigvgan.snake import sinc_filter
from mosslive.codec.mel import MelSettings
from mosslive.codec.weight_norm import fold_weight_norm
from mosslive.config import ConfigError
from mosslive.config.bigvgan import BigVganConfig
from mosslive.errors import MossliveError
from mosslive.kernels.snake import anti_aliased_snake

GOLDEN = Path(__file__).parents[2] / "golden" / "bigvgan.safetensors"

PUBLISHED_24K = BigVganConfig(
    sampling_rate=24_000,
    num_mels=100,
    n_fft=1024,
    win_size=1024,
    hop_size=256,
    fmin=0,
    fmax=None,
    upsample_rates=(4, 4, 2, 2, 2, 2),
    upsample_kernel_sizes=(8, 8, 4, 4, 4, 4),
    upsample_initial_channel=1536,
    resblock_kernel_sizes=(3, 7, 11),
    resblock_dilation_sizes=((1, 3, 5),) * 3,
    snake_logscale=True,
    use_tanh_at_final=False,
    use_bias_at_final=False,
)
GOLDEN_CONFIG = replace(PUBLISHED_24K, num_mels=20, upsample_initial_channel=64)
PUBLISHED_22K = replace(PUBLISHED_24K, sampling_rate=22_050, num_mels=80)

# Small, and each odd in its own way: kernels that are not twice their rate, no overlap between
# stages, a kernel of one, blocks of different depth.
TINY = replace(
    PUBLISHED_24K,
    num_mels=5,
    hop_size=6,
    upsample_rates=(2, 3),
    upsample_kernel_sizes=(4, 5),
    upsample_initial_channel=8,
    resblock_kernel_sizes=(3, 5),
    resblock_dilation_sizes=((1, 2), (1,)),
)
LINEAR_TANH = replace(
    TINY,
    hop_size=3,
    upsample_rates=(3,),
    upsample_kernel_sizes=(9,),
    upsample_initial_channel=4,
    resblock_kernel_sizes=(1, 3),
    resblock_dilation_sizes=((2,), (1, 3)),
    snake_logscale=False,
    use_tanh_at_final=True,
    use_bias_at_final=True,
)
WIDE_KERNEL = replace(
    TINY, hop_size=4, upsample_rates=(2, 2), upsample_kernel_sizes=(2, 8), num_mels=3
)
FAMILY = [TINY, LINEAR_TANH, WIDE_KERNEL]


def relative_error(result: Tensor, wanted: Tensor) -> float:
    assert result.shape == wanted.shape
    return float((result - wanted).abs().max() / wanted.abs().max())


def random_tensors(config: BigVganConfig, seed: int = 0) -> dict[str, Tensor]:
    """A folded state dict in which every tensor matters and the wave neither dies nor clips."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in folded_shapes(config).items():
        values = torch.randn(shape, generator=generator)
        if name.endswith("filter"):
            values = sinc_filter() + 0.01 * values
        elif name.endswith("weight"):
            values = values / math.sqrt(math.prod(shape[1:]))
        elif not config.snake_logscale and "act." in name:
            values = values.abs() + 0.3
        else:
            values = 0.3 * values
        tensors[name] = values
    tensors["conv_post.weight"] *= 0.2
    return tensors


@lru_cache
def tiny_network(config: BigVganConfig) -> BigVgan:
    """In double precision, where properties hold up to rounding. Shared: do not change it."""
    return BigVgan.from_tensors(random_tensors(config), config).double()


def random_mel(bands: int, frames: int, seed: int = 0) -> Tensor:
    return torch.randn((bands, frames), generator=torch.Generator().manual_seed(seed))


def golden(kind: str) -> dict[str, Tensor]:
    """`w`: the weights by published name; `io`: inputs and outputs."""
    prefix = f"{kind}."
    tensors = load_file(GOLDEN).items()
    return {name.removeprefix(prefix): t for name, t in tensors if name.startswith(prefix)}


@lru_cache
def golden_network() -> BigVgan:
    """Shared: do not change it."""
    return BigVgan.from_tensors(golden("w"), GOLDEN_CONFIG)


def test_golden_wave() -> None:
    """The whole generator of the public reference, to 1e-4."""
    io = golden("io")
    assert relative_error(golden_network()(io["mel"]), io["wave"]) < 1e-4


def test_golden_block() -> None:
    """One residual block (kernel 11) of the public reference, to 1e-5."""

    class Plain:
        def layer(self, module: torch.nn.Module, x: Tensor) -> Tensor:
            result: Tensor = module(x)
            return result

        def add(
            self, conv: torch.nn.Module, x: Tensor, parts: Sequence[Tensor], scale: float
        ) -> Tensor:
            (part,) = parts
            result: Tensor = (conv(x) + part) * scale
            return result

    io = golden("io")
    result = golden_network().resblocks[2](io["act_in"][None], Plain())[0]
    assert relative_error(result, io["amp_k11_out"]) < 1e-5


def written_out(config: BigVganConfig, tensors: dict[str, Tensor], mel: Tensor) -> Tensor:
    """The published formulas one by one, from a folded state dict; only the snake is shared."""

    def snake(name: str, x: Tensor) -> Tensor:
        names = ("act.alpha", "act.beta", "upsample.filter", "downsample.lowpass.filter")
        held = [tensors[f"{name}.{part}"] for part in names]
        return anti_aliased_snake(x, *held, log_scale=config.snake_logscale)

    def conv(name: str, x: Tensor, dilation: int = 1) -> Tensor:
        weight = tensors[f"{name}.weight"]
        edge = (weight.shape[-1] * dilation - dilation) // 2
        return F.conv1d(F.pad(x, (edge, edge)), weight, tensors.get(f"{name}.bias"), 1, 0, dilation)

    x = conv("conv_pre", mel[None])
    block = 0
    for stage, rate in enumerate(config.upsample_rates):
        weight, bias = (tensors[f"ups.{stage}.0.{part}"] for part in ("weight", "bias"))
        extra = (weight.shape[-1] - rate) // 2
        full = F.conv_transpose1d(x, weight, bias, stride=rate)
        x = full[..., extra : extra + rate * x.shape[-1]]
        outputs = []
        for dilations in config.resblock_dilation_sizes:
            y, name = x, f"resblocks.{block}"
            for i, dilation in enumerate(dilations):
                z = conv(f"{name}.convs1.{i}", snake(f"{name}.activations.{2 * i}", y), dilation)
                y = y + conv(f"{name}.convs2.{i}", snake(f"{name}.activations.{2 * i + 1}", z))
            outputs.append(y)
            block += 1
        x = torch.stack(outputs).mean(0)
    wave = conv("conv_post", snake("activation_post", x))[0, 0]
    return wave.tanh() if config.use_tanh_at_final else wave.clamp(-1, 1)


@pytest.mark.parametrize("config", FAMILY)
def test_any_config(config: BigVganConfig) -> None:
    """Rates, kernels, dilations and flags that the golden model does not have."""
    tensors = {name: tensor.double() for name, tensor in random_tensors(config).items()}
    mel = random_mel(config.num_mels, 13).double()
    torch.testing.assert_close(tiny_network(config)(mel), written_out(config, tensors, mel))


@pytest.mark.parametrize(
    ("config", "parameters"), [(PUBLISHED_24K, 112_414_512), (PUBLISHED_22K, 112_199_472)]
)
def test_published_inventory(config: BigVganConfig, parameters: int) -> None:
    """A published folder stores 783 tensors; the folded generator has the published size."""
    with torch.device("meta"):
        network = BigVgan(config)
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert len(stored_shapes(config, ["conv_pre.weight_v"])) == 783
    stored = golden("w").keys()
    assert stored_shapes(config, stored).keys() == stored


@pytest.mark.parametrize("config", [PUBLISHED_24K, *FAMILY])
def test_files_and_network_agree(config: BigVganConfig) -> None:
    """What the reader demands of a file is what the network loads, name by name."""
    with torch.device("meta"):
        state = BigVgan(config).state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == folded_shapes(config)


def touched_samples(network: BigVgan, frame: int, frames: int) -> list[int]:
    """Impulse response by not-a-number: it survives every sum and no weight can hide it."""
    mel = random_mel(network.config.num_mels, frames)
    mel[:, frame] = math.nan
    wave: Tensor = network(mel)
    touched: list[int] = wave.isnan().nonzero().flatten().tolist()
    return touched


def test_published_reach() -> None:
    """A frame changes 9501 samples beyond its own on both sides, which are 38 frames."""
    assert reach_of(PUBLISHED_24K) == (38, 38)
    wide = BigVgan.from_tensors(golden("w"), GOLDEN_CONFIG).double()
    touched = touched_samples(wide, frame=40, frames=81)
    assert touched == list(range(40 * 256 - 9501, 41 * 256 + 9501))


@pytest.mark.parametrize("config", FAMILY)
def test_reach_of_any_config(config: BigVganConfig) -> None:
    """The computed reach is the true one: neither a frame less nor a frame more."""
    network, hop = tiny_network(config), config.hop_size
    behind, ahead = reach_of(config)
    frame = behind + ahead + 1
    touched = touched_samples(network, frame, 2 * frame)
    assert touched[0] // hop == frame - ahead
    assert touched[-1] // hop == frame + behind


@pytest.mark.parametrize("frames", [0, 1, 2, 7])
@pytest.mark.parametrize("config", FAMILY)
def test_samples_per_frame(config: BigVganConfig, frames: int) -> None:
    """hop · T samples, within full scale, for any number of frames."""
    wave = tiny_network(config)(random_mel(config.num_mels, frames))
    assert wave.shape == (config.hop_size * frames,)
    assert wave.isfinite().all()
    assert (wave.abs() <= 1).all()


def test_rows_do_not_meet() -> None:
    """Each row of a batch is what it is alone; numpy and float64 input are taken as well."""
    network = tiny_network(TINY)
    mels = torch.stack([random_mel(5, 9, seed) for seed in range(3)])
    waves = network(mels.double().numpy())
    assert waves.shape == (3, 54)
    for mel, wave in zip(mels, waves, strict=True):
        torch.testing.assert_close(network(mel), wave)


def test_end_of_the_network() -> None:
    """Clamp without and tanh with the flag; the last bias is used where there is one."""
    tensors = random_tensors(TINY)
    loud = {**tensors, "conv_post.weight": 50 * tensors["conv_post.weight"]}
    mel = random_mel(5, 20)
    clamped = BigVgan.from_tensors(loud, TINY)(mel)
    assert set(clamped[clamped.abs() == 1].tolist()) == {-1.0, 1.0}
    config = replace(TINY, use_tanh_at_final=True)
    squeezed = BigVgan.from_tensors(loud, config)(mel)
    inside = clamped.abs() < 1
    torch.testing.assert_close(squeezed[inside], clamped[inside].tanh())
    assert torch.equal(squeezed[~inside].sign(), clamped[~inside])
    config = replace(TINY, use_bias_at_final=True)
    shifted = BigVgan.from_tensors({**tensors, "conv_post.bias": torch.tensor([0.125])}, config)
    plain = BigVgan.from_tensors(tensors, TINY)
    torch.testing.assert_close(shifted(mel), (plain(mel) + 0.125).clamp(-1, 1))


def test_bfloat16_is_close() -> None:
    """Half-precision weights give a float32 wave near the exact one."""
    exact = BigVgan.from_tensors(random_tensors(TINY), TINY)
    rough = BigVgan.from_tensors(random_tensors(TINY), TINY).bfloat16()
    mel = random_mel(5, 30)
    wave = rough(mel)
    assert wave.dtype == torch.float32
    assert 1e-5 < relative_error(wave, exact(mel)) < 0.05


def test_folded_weights_are_taken_too() -> None:
    """A checkpoint whose weight norm is folded already loads to the same network."""
    stored = golden("w")
    folded = fold_weight_norm(stored)
    assert len(folded) < len(stored)
    one, other = (BigVgan.from_tensors(tensors, GOLDEN_CONFIG) for tensors in (stored, folded))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not any(parameter.requires_grad for parameter in one.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conv_pre.weight": None}, "conv_pre.weight"),
        ({"resblocks.1.activations.0.upsample.filter": None}, "upsample.filter"),
        ({"conv_pre.bias": torch.zeros(9)}, "conv_pre.bias"),
        ({"speaker.weight": torch.zeros(3)}, "speaker.weight"),
        ({"ups.0.0.weight": None, "ups.0.0.weight_v": torch.ones(8, 4, 4)}, "weight_g"),
    ],
)
def test_tensors_that_contradict_the_config(
    changes: dict[str, Tensor | None], message: str
) -> None:
    """Absent, misshaped, foreign or half-given tensors are named."""
    tensors = {**random_tensors(TINY), **changes}
    held = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    with pytest.raises(MossliveError, match=message):
        BigVgan.from_tensors(held, TINY)


@pytest.mark.parametrize(
    "mel",
    [
        torch.zeros(4, 10),
        torch.zeros(10, 5),
        torch.zeros(5),
        torch.zeros(1, 1, 5, 10),
        torch.zeros(5, 10, dtype=torch.int64),
        np.zeros((5, 10), dtype=np.int16),
    ],
)
def test_mel_of_the_wrong_kind(mel: Tensor) -> None:
    """The shape given and the shapes allowed are in the message."""
    network = BigVgan.from_tensors(random_tensors(TINY), TINY)
    for use in (network, network.stream().push):
        with pytest.raises(MossliveError, match=r"\[5, frames\] or \[batch, 5, frames\]"):
            use(mel)


def write_folder(folder: Path, config: BigVganConfig, tensors: dict[str, Tensor]) -> Path:
    """The published layout."""
    published = {"resblock": "1", "activation": "snakebeta", "segment_size": 65536}
    (folder / "config.json").write_text(json.dumps(asdict(config) | published))
    torch.save({"generator": tensors}, folder / GENERATOR_FILE)
    return folder


def test_load_from_a_folder(tmp_path: Path) -> None:
    """From the published files to a wave; rate, hop and mel settings are the checkpoint's."""
    tensors = random_tensors(TINY)
    vocoder = load_bigvgan(write_folder(tmp_path, TINY, tensors), "cpu", "float32")
    mel = random_mel(5, 12)
    assert torch.equal(vocoder(mel), BigVgan.from_tensors(tensors, TINY)(mel))
    assert (vocoder.sample_rate, vocoder.hop) == (24_000, 6)
    assert vocoder.mel_settings == MelSettings(24_000, 1024, 6, 5, 0, 12_000)


@pytest.mark.parametrize(("dtype", "cosine"), [("bfloat16", 0.99), ("float16", 0.999)])
def test_half_precision_is_of_convolutions(tmp_path: Path, dtype: str, cosine: float) -> None:
    """Weights of convolutions are rounded, what bends and filters is not; the sound stays close."""
    tensors = random_tensors(GOLDEN_CONFIG)
    rough = load_bigvgan(write_folder(tmp_path, GOLDEN_CONFIG, tensors), dtype=dtype)
    for name, tensor in rough.state_dict().items():
        snake = "activation" in name
        assert tensor.dtype == (torch.float32 if snake else getattr(torch, dtype)), name
    mel = random_mel(20, 12)
    exact = BigVgan.from_tensors(tensors, GOLDEN_CONFIG)(mel)
    assert float(F.cosine_similarity(rough(mel), exact, 0)) > cosine


@pytest.mark.parametrize(("name", "value"), [("dtype", "int8"), ("device", "abacus")])
def test_load_refuses(tmp_path: Path, name: str, value: str) -> None:
    """A dtype or device that cannot be had is refused before any file is read."""
    with pytest.raises(ConfigError, match=f"{name} is '{value}'"):
        load_bigvgan(tmp_path / "nothing", **{name: value})
