"""The flow by prefix recomputation: golden mel, the fixed noise and grid, and what it refuses."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from mosslive.codec.conformer import ConformerDims
from mosslive.codec.estimator import EstimatorDims
from mosslive.codec.flow import Flow, FlowDims, FlowVoice
from mosslive.codec.flow_past import Whole
from mosslive.codec.flow_solver import Condition, FlowSettings, fixed_noise, solve, time_grid
from mosslive.errors import MossliveError
from tests.codec.flow_models import (
    CODES,
    GOLDEN_CHUNK,
    GOLDEN_CODES,
    GOLDEN_HEAD_DIM,
    error,
    golden,
    small_codes,
    small_flow,
    small_voice,
)

LIMIT = 5e-5  # golden README


def test_noise_listed_values() -> None:
    """The fixed noise has the published values at four places; no checkpoint stores it."""
    noise = fixed_noise(80)
    listed = {
        (0, 0): "-1.12583983 -1.15236020 -0.25057858 -0.43387884 0.84871036 0.69200915 -0.31601277 "
        "-2.11521935",
        (1, 0): "0.86917937 0.57619685 -0.41195306 0.64640385",
        (40, 7000): "-0.54155505 -0.73815382 0.89121002 -1.18164790",
        (79, 14996): "-1.31353581 -0.03215691 -0.98260099 -0.08329441",
    }
    assert noise.shape == (80, 15000)
    for (band, frame), text in listed.items():
        wanted = torch.tensor([float(value) for value in text.split()])
        found = noise[band, frame : frame + len(wanted)]
        torch.testing.assert_close(found, wanted, rtol=0, atol=2e-6)
    assert error(noise[:, : golden().io["noise"].shape[1]], golden().io["noise"]) < 2e-6


def test_noise_by_its_recipe() -> None:
    """All 1 200 000 values follow from MT19937 and Box-Muller, should PyTorch ever change."""
    draws = np.random.RandomState(0).randint(0, 2**32, 1_200_000, dtype=np.uint32)
    u = ((draws & 0xFFFFFF) * 2.0**-24).reshape(-1, 2, 8)
    radius, angle = np.sqrt(-2 * np.log(1 - u[:, 0])), 2 * np.pi * u[:, 1]
    wanted = np.stack((radius * np.cos(angle), radius * np.sin(angle)), 1).reshape(80, 15000)
    torch.testing.assert_close(fixed_noise(80).double(), torch.tensor(wanted), rtol=0, atol=5e-6)


def test_grid_in_float32() -> None:
    """The time grid has the reference's float32 values, not the exact ones."""
    listed = (
        "0 .0123116374 .0489434600 .108993471 .190982997 .292893231 .412214816 .546009481 "
        ".690983057 .843565524 1"
    )
    wanted = torch.tensor([float(value) for value in listed.split()])
    assert torch.equal(torch.tensor(time_grid(10)), wanted)
    assert FlowSettings().grid == time_grid(10)


def test_speaker_vector() -> None:
    """A speaker vector is normalised before the projection; zeros stay zeros, plus the bias."""
    model = golden()
    assert error(model.flow.speaker(model.voice), model.io["spks"]) < 1e-5
    loud = replace(model.voice, embedding=17 * model.voice.embedding)
    assert error(model.flow.speaker(loud), model.io["spks"]) < 1e-5
    silent = replace(model.voice, embedding=torch.zeros(192))
    bias = model.weights["spk_embed_affine_layer.bias"]
    assert torch.equal(model.flow.speaker(silent), bias)


def no_prompt() -> FlowVoice:
    return FlowVoice(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 80), torch.zeros(192))


@pytest.mark.parametrize(
    ("name", "render"),
    [
        ("mel_offline", lambda m: m.flow.mel_offline(m.io["codes"], m.voice)),
        (
            "mel_chunk_final",
            lambda m: m.flow.mel_prefix(m.io["codes"], m.voice, GOLDEN_CHUNK, finalize=True),
        ),
        ("mel_noprompt", lambda m: m.flow.mel_offline(m.io["codes"][:8].tolist(), no_prompt())),
    ],
)
def test_golden_mel(name: str, render: Callable[..., Tensor]) -> None:
    """Codes to mel equals the reference: 10 steps, guidance 0.7; with and without prompt, mask."""
    assert error(render(golden()), golden().io[name]) < LIMIT


def test_golden_prefix_calls() -> None:
    """Prefix calls give the new frames, and do not change the earlier ones."""
    model = golden()
    cursor, earlier = 0, torch.zeros(80, 0)
    for call, hop in enumerate((8, 5, 5)):
        codes = model.io["codes"][: cursor + hop + 3]
        mel = model.flow.mel_prefix(codes, model.voice, GOLDEN_CHUNK, finalize=False)
        assert error(mel[:, 4 * cursor :], model.io[f"mel_chunk{call}"]) < LIMIT
        torch.testing.assert_close(mel[:, : 4 * cursor], earlier, rtol=0, atol=1e-4)
        cursor, earlier = cursor + hop, mel


def test_chunk_mask_is_not_full_attention() -> None:
    """The two masks must not be swapped: they differ, visibly."""
    model = golden()
    offline = model.flow.mel_offline(model.io["codes"], model.voice)
    assert error(offline, model.io["mel_chunk_final"]) > 100 * LIMIT


@pytest.mark.parametrize(("steps", "guidance"), [(1, 0.7), (3, 0.0), (4, 1.5)])
def test_euler_with_guidance(steps: int, guidance: float) -> None:
    """x += dt · ((1 + g) v_cond - g v_free), where the unconditional half sees only x and t."""
    flow, frames = small_flow(), 9
    generator = torch.Generator().manual_seed(3)
    mu, known = torch.randn(2, 2, 3, frames, generator=generator)
    speaker, x = torch.randn(2, 3, generator=generator), flow.noise[None, :, :frames]
    condition = Condition(mu, speaker, known)
    past = Whole(frames, None, x)
    noise = x.expand(2, -1, -1)
    found = solve(flow.estimator, noise, condition, past, FlowSettings(steps, guidance))
    for row in range(2):
        x = flow.noise[None, :, :frames]
        channels = torch.cat((mu[row], speaker[row][:, None].expand(-1, frames), known[row]))[None]
        for k in range(steps):
            now, then = (1 - np.cos(np.pi / 2 * (k + j) / steps) for j in (0, 1))
            t = torch.tensor([now], dtype=torch.float32)
            with_mu = flow.estimator(torch.cat((x, channels), 1), t, past)
            without = flow.estimator(torch.cat((x, 0 * channels), 1), t, past)
            x = x + (then - now) * ((1 + guidance) * with_mu - guidance * without)
        torch.testing.assert_close(found[row], x[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("code", [GOLDEN_CODES, 2**40, -1])
def test_invalid_codes_are_refused(code: int) -> None:
    """Codes beyond the limit, which have table rows, and negative ones are errors."""
    model = golden()
    codes = [*model.io["codes"].tolist()[:4], code, 7]
    message = rf"code {code} at index 4 .* 0\.\.199"
    with pytest.raises(MossliveError, match=message):
        model.flow.mel_offline(codes, model.voice)
    with pytest.raises(MossliveError, match=message):
        model.flow.mel_prefix(codes, model.voice, 5, finalize=True)
    voice = replace(model.voice, prompt_codes=torch.tensor([*codes, 0, 0, 0, 0, 0, 0]))
    with pytest.raises(MossliveError, match=message):
        model.flow.mel_offline([1], voice)


def test_limit_is_below_the_table() -> None:
    """The last real code is allowed although the table has more rows; the limit is a setting."""
    flow, voice = small_flow(), small_voice(2, 0)
    assert flow.input_embedding.weight.shape[0] > CODES
    assert torch.isfinite(flow.mel_offline([CODES - 1], voice)).all()
    with pytest.raises(MossliveError, match=r"0\.\.49"):
        flow.mel_offline([CODES], voice)
    with pytest.raises(MossliveError, match="code_limit is 65, but"):
        Flow(flow.dims, FlowSettings(code_limit=65))


@pytest.mark.parametrize(
    ("codes", "finalize", "message"),
    [
        ([], True, "0 codes; at least 1"),
        ([1, 2, 3], False, "3 codes; at least 4"),
        ([1] * 3749, True, "3751 codes, prompt included; allowed: 3750, which is 300 s"),
        (torch.zeros(1, 4, dtype=torch.int64), True, "one axis"),
    ],
)
def test_lengths_that_are_refused(codes: list[int] | Tensor, finalize: bool, message: str) -> None:
    """No codes, or more codes than the fixed noise covers, raise `MossliveError`."""
    with pytest.raises(MossliveError, match=message):
        small_flow().mel_prefix(codes, small_voice(2, 0), 5, finalize)


def test_shortest_calls() -> None:
    """One code finalised, four not: 4 frames each, prompt or not."""
    for prompt in (0, 1, 6):
        voice = small_voice(prompt, prompt)
        assert small_flow().mel_offline([3], voice).shape == (3, 4)
        assert small_flow().mel_prefix([3, 1, 2, 4], voice, 5, finalize=False).shape == (3, 4)


def test_voices_whose_sizes_disagree() -> None:
    """Mel of another length than the codes, or a vector of another width, is named."""
    voice, codes = small_voice(4, 0), small_codes(5, 0)
    bad = {
        r"prompt_feat has shape \[15, 3\]; \[16, 3\]": replace(
            voice, prompt_feat=voice.prompt_feat[1:]
        ),
        r"embedding has shape \[6\]; \[5\]": replace(voice, embedding=torch.zeros(6)),
    }
    for message, wrong in bad.items():
        with pytest.raises(MossliveError, match=message):
            small_flow().mel_offline(codes, wrong)
    with pytest.raises(MossliveError, match="chunk is 0"):
        small_flow().mel_prefix(codes, voice, 0, finalize=True)


@pytest.mark.parametrize(
    ("field", "value"), [("steps", 0), ("guidance", -0.1), ("guidance", float("nan")),
                         ("code_limit", 0)],
)  # fmt: skip
def test_settings_are_checked(field: str, value: float) -> None:
    """A setting that makes no sense is named with its value."""
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        FlowSettings(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_less_precision_are_widened(dtype: torch.dtype) -> None:
    """A flow stored in halves computes in float32, with exactly the values it was stored with."""
    model = golden()
    stored = {name: tensor.to(dtype) for name, tensor in model.weights.items()}
    settings = FlowSettings(code_limit=GOLDEN_CODES)
    flow = Flow.from_tensors(stored, settings, GOLDEN_HEAD_DIM)
    assert {tensor.dtype for tensor in flow.state_dict().values()} == {torch.float32}
    wide = {name: tensor.float() for name, tensor in stored.items()}
    same = Flow.from_tensors(wide, settings, GOLDEN_HEAD_DIM)
    codes = model.io["codes"][:12]
    assert torch.equal(flow.mel_offline(codes, model.voice), same.mel_offline(codes, model.voice))


def test_full_size_inventory() -> None:
    """The flow has 1121 tensors and 120 724 464 values, named and shaped as published."""
    conformer = ConformerDims(width=512, heads=8, ffn=2048, layers=6, up_layers=4)
    estimator = EstimatorDims(80, 320, 256, 1024, 512, 64, 1024, 4, 12)
    with torch.device("meta"):
        flow = Flow(FlowDims(20480, 192, conformer, estimator))
    shapes = {name: tuple(value.shape) for name, value in flow.state_dict().items()}
    assert len(shapes) == 1121
    assert sum(np.prod(shape) for shape in shapes.values()) == 120_724_464
    root = "decoder.estimator."
    assert shapes[f"{root}up_blocks.0.0.res_conv.weight"] == (256, 512, 1)
    assert shapes[f"{root}mid_blocks.11.1.3.ff.net.0.proj.weight"] == (1024, 256)
    assert shapes["encoder.encoders.5.self_attn.pos_bias_v"] == (8, 64)
    assert flow.estimator.layers == 56
    assert flow.estimator.tail_values() == 2 * (29 * 256 + 320 + 512)  # 31 convolutions


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder_proj.bias": None}, "absent: encoder_proj.bias"),
        ({"input_embedding.weight": None}, "input_embedding.weight is absent"),
        ({"epoch": torch.zeros(1)}, "unknown: epoch"),
        (
            {"encoder.up_layer.conv.weight": torch.zeros(64, 64, 8)},
            "encoder.up_layer.conv.weight [64, 64, 8], needed [64, 64, 9]",
        ),
        ({"encoder.after_norm.weight": torch.zeros(64, 1)}, "[64, 1]; 1 axes are needed"),
        (
            {"decoder.estimator.final_proj.weight": torch.zeros(81, 32, 1)},
            "takes 320 channels; 324 are needed",
        ),
    ],
)
def test_tensors_that_do_not_fit(change: dict[str, Tensor | None], message: str) -> None:
    """What is absent, unknown or of the wrong shape is named before anything runs."""
    changed = {**golden().weights, **change}
    weights = {name: value for name, value in changed.items() if value is not None}
    with pytest.raises(MossliveError, match=re.escape(message)):
        Flow.from_tensors(weights, FlowSettings(code_limit=GOLDEN_CODES), GOLDEN_HEAD_DIM)
