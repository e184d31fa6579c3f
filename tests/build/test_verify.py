"""Golden probes: an independent reference, and verdicts that fail for wrong models."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mosslive import LanguageModel
from mosslive.bench.reference import ReferenceModel
from mosslive.build.forward import run_sequences
from mosslive.build.probes import Probe, make_probes, read_probes, write_probes
from mosslive.build.verify import LIMITS, _compare, check_probes
from mosslive.checkpoint import Checkpoint
from mosslive.checkpoint.engine_layout import Precision
from mosslive.checkpoint.faults import FailedProbes
from mosslive.kernels import Matrix
from mosslive.model import Decoder, DecoderWeights, LayerWeights, load_weights
from mosslive.rows import CHANNELS

CPU = torch.device("cpu")
Change = Callable[[DecoderWeights, "LanguageModel"], DecoderWeights]


@pytest.fixture(scope="module")
def probes(nano_checkpoint: Checkpoint, nano_lm: LanguageModel) -> list[Probe]:
    return make_probes(nano_checkpoint, nano_lm.tokenizer)


def test_reference_equals_transformers(probes: list[Probe], nano_folder: Path) -> None:
    """The golden logits equal those of transformers' Qwen3 layers on the same files."""
    reference = ReferenceModel(nano_folder)
    for probe in probes:
        for channel, wanted in zip(
            CHANNELS, reference.logits(torch.tensor(probe.rows)), strict=True
        ):
            scale = float(wanted.abs().max())
            error = (probe.logits[channel] - wanted[probe.positions]).abs().max()
            assert float(error) < 2e-6 * scale


def test_probes_are_varied_and_small(probes: list[Probe], nano_lm: LanguageModel) -> None:
    """Probes contain text and speech rows, skip first rows, are small and deterministic."""
    rows = [row for probe in probes for row in probe.rows]
    speech = sum(nano_lm.ids.is_speech(row) for row in rows)
    assert 20 < speech < len(rows) - 20
    positions = [position for probe in probes for position in probe.positions]
    assert len(positions) == 9
    assert min(positions) > 0


def test_probes_survive_their_file(probes: list[Probe], tmp_path: Path) -> None:
    """Probes round-trip through their file bit for bit."""
    write_probes(probes, tmp_path / "probes")
    for ours, read in zip(probes, read_probes(tmp_path / "probes"), strict=True):
        assert (ours.rows, ours.positions) == (read.rows, read.positions)
        assert all(torch.equal(ours.logits[c], read.logits[c]) for c in CHANNELS)


def test_batched_sequences_equal_single_ones(nano_lm: LanguageModel, probes: list[Probe]) -> None:
    """Several sequences in one paged pass equal `forward` on each alone."""
    decoder = nano_lm.runner.decoder
    tails = run_sequences(decoder, [probe.rows for probe in probes])
    wanted = [nano_lm.forward(probe.rows) for probe in probes]
    for index, channel in enumerate(CHANNELS):
        alone = torch.cat([logits[index] for logits in wanted])
        torch.testing.assert_close(decoder.logits(channel, tails[channel]), alone)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_right_models_pass(
    nano_checkpoint: Checkpoint, probes: list[Probe], precision: Precision
) -> None:
    """A correct decoder is well within the limits of its precision."""
    dtype = torch.float32 if precision == "float32" else torch.bfloat16
    decoder = Decoder(nano_checkpoint.config, load_weights(nano_checkpoint, CPU, dtype))
    verdict = check_probes(decoder, probes, precision)
    verdict.require()
    for head in verdict.heads.values():
        assert head.error < LIMITS[precision].error / 3
        assert 1 - head.cosine < (1 - LIMITS[precision].cosine) / 3


def in_trunk(change: Callable[[LayerWeights], LayerWeights]) -> Change:
    return lambda weights, _: replace(weights, trunk=[change(layer) for layer in weights.trunk])


def _no_qk_norm(layer: LayerWeights) -> LayerWeights:
    return replace(layer, qk_norm=torch.ones_like(layer.qk_norm))


def _permuted_qk(layer: LayerWeights) -> LayerWeights:
    """Swaps the first rows of q with those of k: 32 of 64 rows of nano's q."""
    fused = layer.qkv.weight
    q, k = fused[:32].clone(), fused[64:96].clone()
    return replace(layer, qkv=Matrix(torch.cat((k, fused[32:64], q, fused[96:]))))


def _swapped_gate(layer: LayerWeights) -> LayerWeights:
    gate, up = layer.gate_up.weight.chunk(2)
    return replace(layer, gate_up=Matrix(torch.cat((up, gate))))


def _swapped_tails(weights: DecoderWeights, _: LanguageModel) -> DecoderWeights:
    text, audio = weights.tails["text"], weights.tails["audio"]
    return replace(
        weights,
        tails={
            "text": replace(text, layers=audio.layers),
            "audio": replace(audio, layers=text.layers),
        },
    )


def _one_final_norm(weights: DecoderWeights, _: LanguageModel) -> DecoderWeights:
    text, audio = weights.tails["text"], weights.tails["audio"]
    return replace(weights, tails={"text": text, "audio": replace(audio, norm=text.norm)})


def _text_for_speech(weights: DecoderWeights, _: LanguageModel) -> DecoderWeights:
    audio = weights.tails["audio"]
    other = replace(audio, embed=torch.zeros_like(audio.embed))
    return replace(weights, tails=weights.tails | {"audio": other})


WRONG: dict[str, Change] = {
    "QK norms dropped": in_trunk(_no_qk_norm),
    "q and k permuted": in_trunk(_permuted_qk),
    "gate and up swapped": in_trunk(_swapped_gate),
    "tails swapped": _swapped_tails,
    "one final norm": _one_final_norm,
    "speech not embedded": _text_for_speech,
    "layers exchanged": lambda weights, _: replace(weights, trunk=weights.trunk[::-1]),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_wrong_models_fail(
    nano_checkpoint: Checkpoint,
    nano_lm: LanguageModel,
    probes: list[Probe],
    name: str,
    precision: Precision,
) -> None:
    """Each known porting mistake fails the verdict, even with the limits of bf16."""
    weights = WRONG[name](load_weights(nano_checkpoint, CPU, torch.float32), nano_lm)
    verdict = check_probes(Decoder(nano_checkpoint.config, weights), probes, precision)
    assert not verdict.passed
    with pytest.raises(FailedProbes, match="allowed for"):
        verdict.require()


def test_wrong_rotary_base_fails(nano_checkpoint: Checkpoint, probes: list[Probe]) -> None:
    """A wrong number in the config fails the verdict."""
    config = replace(nano_checkpoint.config, rope_theta=10_000.0)
    decoder = Decoder(config, load_weights(nano_checkpoint, CPU, torch.float32))
    assert not check_probes(decoder, probes, "bfloat16").passed


def test_values_that_are_not_finite_fail() -> None:
    """NaN and infinity fail every limit."""
    wanted = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    assert _compare(wanted, wanted, LIMITS["float32"]).passed
    for bad in (float("nan"), float("inf")):
        ours: Tensor = wanted.clone()
        ours[1, 7] = bad
        assert not _compare(ours, wanted, LIMITS["fp8"]).passed
