"""fp8: choice of matrices, measured loss, and the report."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from mosslive import LanguageModel
from mosslive.build.calibration import Sample, Samples
from mosslive.build.fp8 import (
    Keep,
    batches,
    choose_fp8,
    quantise_trunk,
    replace_matrices,
    snr_db,
)
from mosslive.build.report import Fp8Report, measure_fp8
from mosslive.checkpoint import Checkpoint
from mosslive.checkpoint.engine_layout import matrix_names, trunk_matrices
from mosslive.errors import MossliveError
from mosslive.kernels import embed, linear, rms_norm
from mosslive.model import Decoder, load_weights
from mosslive.rows import Row

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def decoder(nano_checkpoint: Checkpoint) -> Decoder:
    # A processor without bfloat16 multiplies it a hundred times slower than float32. What is true
    # of the ratios and the report is so in both; the first test holds the ratios in both.
    return decoder_of(nano_checkpoint, torch.float32)


def decoder_of(checkpoint: Checkpoint, dtype: torch.dtype) -> Decoder:
    return Decoder(checkpoint.config, load_weights(checkpoint, CPU, dtype))


@pytest.fixture(scope="module")
def samples(nano_lm: LanguageModel) -> list[Sample]:
    return Samples(nano_lm.config, nano_lm.tokenizer).synthetic(6)


def measured(decoder: Decoder, lm: LanguageModel, samples: list[Sample], **given: Any) -> Fp8Report:
    keep = given.pop("keep", Keep())
    return measure_fp8(decoder, samples, lm.ids, keep, **given)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_ratio_of_the_first_product(
    nano_checkpoint: Checkpoint, samples: list[Sample], dtype: torch.dtype
) -> None:
    """The signal-to-noise ratio of trunk.0.qkv equals its definition."""
    decoder = decoder_of(nano_checkpoint, dtype)
    samples = samples if dtype == torch.float32 else samples[:2]
    quantised = quantise_trunk(decoder.config, decoder.weights)
    reported: list[int] = []
    ratios = snr_db(decoder, quantised, samples, reported.append)
    assert sum(reported) == len(samples)
    assert ratios.keys() == set(trunk_matrices(decoder.config))
    rows = torch.tensor([row for sample in samples for row in sample.rows])
    tails, first = decoder.weights.tails, decoder.weights.trunk[0]
    pad = decoder.config.modality_pad_token_id
    hidden = embed(rows[:, 0], rows[:, 1], tails["text"].embed, tails["audio"].embed, pad)
    normed = rms_norm(hidden, first.input_norm, decoder.config.rms_norm_eps)
    exact = linear(normed, first.qkv).double()
    noise = linear(normed, quantised["trunk.0.qkv"]).double() - exact
    wanted = 10 * math.log10(float(exact.square().sum() / noise.square().sum()))
    assert ratios["trunk.0.qkv"] == pytest.approx(wanted, abs=0.01)
    # e4m3 has three bits after the leading one: about 29 dB for values without outliers.
    assert all(27 < ratio < 31 for ratio in ratios.values())


def test_measuring_changes_nothing(decoder: Decoder, samples: list[Sample]) -> None:
    """Each ratio is measured in the unquantised model, so one bad matrix affects no other."""
    quantised = quantise_trunk(decoder.config, decoder.weights)
    right = snr_db(decoder, quantised, samples, lambda _: None)
    spoiled = quantised["trunk.0.qkv"]
    assert spoiled.scale is not None
    quantised["trunk.0.qkv"] = replace(spoiled, scale=-spoiled.scale)
    wrong = snr_db(decoder, quantised, samples, lambda _: None)
    assert wrong["trunk.0.qkv"] == pytest.approx(-20 * math.log10(2), abs=0.1)
    assert all(wrong[name] == right[name] for name in right if name != "trunk.0.qkv")


@pytest.mark.parametrize(
    ("patterns", "kept"),
    [
        ((), set()),
        (("trunk.1",), {f"trunk.1.{m}" for m in ("qkv", "o", "gate_up", "down")}),
        (("*.down",), {f"trunk.{n}.down" for n in range(3)}),
        (("trunk.2.o", "trunk.0.qk?"), {"trunk.2.o", "trunk.0.qkv"}),
    ],
)
def test_kept_by_name(nano_lm: LanguageModel, patterns: tuple[str, ...], kept: set[str]) -> None:
    """Patterns match matrices or whole layers."""
    assert Keep(patterns).named(nano_lm.config) == kept


def test_a_pattern_that_matches_nothing(nano_lm: LanguageModel) -> None:
    """A pattern without a match raises, so a typo never quantises a matrix by mistake."""
    with pytest.raises(MossliveError, match=r"keep is 'trunk\.9\.down'; allowed: a pattern"):
        Keep(("trunk.9.down",)).named(nano_lm.config)
    with pytest.raises(MossliveError, match="a finite number of decibels"):
        Keep(below_db=math.nan)


def test_kept_by_threshold(nano_lm: LanguageModel) -> None:
    """Named matrices and those below the threshold stay; all others become fp8."""
    config = nano_lm.config
    ratios = dict.fromkeys(trunk_matrices(config), 30.0) | {"trunk.1.o": 12.0}
    chosen = choose_fp8(config, ratios, Keep(("trunk.0.down",), below_db=20))
    assert chosen == set(ratios) - {"trunk.1.o", "trunk.0.down"}


def test_report_of_nothing_quantised(
    decoder: Decoder, nano_lm: LanguageModel, samples: list[Sample]
) -> None:
    """With every matrix kept, all cosines are 1 and no id differs."""
    report = measured(decoder, nano_lm, samples, keep=Keep(("*",)))
    assert report.kept == trunk_matrices(decoder.config)
    names = matrix_names(decoder.config)
    assert set(report.precision("bfloat16", names).values()) == {"bfloat16"}
    followers = [(s.rows[n + 1]) for s in samples for n in range(len(s.rows) - 1)]
    speech = sum(nano_lm.ids.is_speech(row) for row in followers)
    assert report.heads["audio"].rows == speech
    assert report.heads["text"].rows == len(followers) - speech
    for head in report.heads.values():
        assert head.argmax_agreement == 1
        assert head.cosine_worst == pytest.approx(1, abs=1e-6)


def test_report_of_a_quantised_trunk(
    decoder: Decoder, nano_lm: LanguageModel, samples: list[Sample]
) -> None:
    """fp8 changes the logits slightly, and the report is plain JSON values."""
    report = measured(decoder, nano_lm, samples)
    assert report.kept == []
    for head in report.heads.values():
        assert 0.99 < head.cosine_worst < head.cosine_mean < 0.9999
        assert 0.8 < head.argmax_agreement <= 1
    content = report.to_dict()
    assert content["free_running"] is None
    assert content["rows"] == sum(len(sample.rows) for sample in samples)
    precision = report.precision("bfloat16", matrix_names(decoder.config))
    assert {n for n, p in precision.items() if p == "fp8"} == set(trunk_matrices(decoder.config))


def test_runaways_are_counted(
    decoder: Decoder, nano_lm: LanguageModel, samples: list[Sample]
) -> None:
    """Replies without an end are counted; speech ends with eosp, text with a stop id."""
    ids = nano_lm.ids
    stop, closing, going = (min(ids.stops), 0), (ids.modality_pad, ids.eosp), (1, 2)
    # Prompts alternate text, speech: what ends one kind does not end the other.
    before: list[list[Row]] = [[going, stop], [closing], [closing], [going], [stop], [going]]
    after: list[list[Row]] = [[going], [going], [going, stop], [stop], [stop], [going, going]]
    models: list[Decoder] = []

    def replies(model: Decoder, prompts: list[list[Row]]) -> list[list[Row]]:
        assert prompts == [sample.rows[: sample.prompt_rows] for sample in samples]
        models.append(model)
        return before if len(models) == 1 else after

    report = measured(decoder, nano_lm, samples, replies=replies, reply_count=6)
    assert models[0] is decoder
    assert models[1].weights.trunk[0].qkv.scale is not None
    running = report.free_running
    assert running is not None
    found = (running.replies, running.runaways_before, running.runaways_fp8, running.new_runaways)
    assert found == (6, 3, 3, 2)


def test_no_noise_has_no_ratio() -> None:
    """An infinite ratio becomes null in JSON."""
    report = Fp8Report(1, 1, {"trunk.0.o": math.inf}, [], {}, None)
    assert report.to_dict()["snr_db"] == {"trunk.0.o": None}


def test_replacing_matrices_leaves_the_rest(decoder: Decoder) -> None:
    """Only the given matrices are replaced; the original weights are unchanged."""
    quantised = quantise_trunk(decoder.config, decoder.weights)
    changed = replace_matrices(decoder.weights, {"trunk.1.o": quantised["trunk.1.o"]})
    assert changed.trunk[1].o is quantised["trunk.1.o"]
    assert changed.trunk[1].qkv is decoder.weights.trunk[1].qkv
    assert decoder.weights.trunk[1].o.scale is None
    assert changed.tails is decoder.weights.tails


def test_passes_keep_order_and_size() -> None:
    """Every sample appears once, in order; a long one has a batch of its own."""
    lengths = [600, 500, 2000, 10, 1014, 1]
    made = [Sample([(0, 0)] * length, length) for length in lengths]
    groups = [[len(sample.rows) for sample in group] for group in batches(made)]
    assert groups == [[600], [500], [2000], [10, 1014], [1]]
