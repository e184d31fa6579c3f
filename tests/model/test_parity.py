"""Logits against the reference built from transformers' own Qwen3 layers, on the same files."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mosslive import LanguageModel, Turn, load_lm
from mosslive.bench.reference import ReferenceModel
from tests.reference.variants import VARIANTS, broken_reference

FP32_SHARE = 1e-4  # largest error as a share of the logit scale

# The frozen tolerance, for logits whose mean magnitude is 9.25: |error| <= 1.0 + 0.02 |ref| for all
# but 1e-4 of the elements, and never above 4.5. The absolute parts are scaled to our logits.
BF16_MEAN, BF16_ABSOLUTE, BF16_RELATIVE, BF16_OUTSIDE, BF16_MOST = 9.25, 1.0, 0.02, 1e-4, 4.5


def mixed_rows(lm: LanguageModel) -> Tensor:
    """Text and speech turns of both speakers: every kind of row in the prompt format."""
    turns = [
        Turn("system", text="You are a helpful assistant."),
        Turn("user", codes=[3, 499, 64, 64, 0, 17]),  # 64 is the audio pad and a code
        Turn("assistant", text="Hello! 你好"),
        Turn("user", text="And now?"),
        Turn("assistant", codes=[250, 1, 2]),
    ]
    return lm.prompt(turns, reply="speech")


def random_rows(lm: LanguageModel, count: int, seed: int) -> Tensor:
    """Any ids, half of them speech rows, the ids above the end of speech included."""
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(lm.config.vocab_size, (count,), generator=generator)
    audio = torch.randint(lm.config.audio_vocab_size, (count,), generator=generator)
    text[torch.rand(count, generator=generator) < 0.5] = lm.ids.modality_pad
    return torch.stack((text, audio), dim=1)


def fp32_close(ours: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> bool:
    return all(
        bool((a - b).abs().max() <= FP32_SHARE * b.abs().max())
        for a, b in zip(ours, wanted, strict=True)
    )


def bf16_close(ours: Tensor, wanted: Tensor) -> bool:
    scale = float(wanted.abs().mean()) / BF16_MEAN
    error = (ours - wanted).abs()
    outside = (error > BF16_ABSOLUTE * scale + BF16_RELATIVE * wanted.abs()).float().mean()
    return bool(outside <= BF16_OUTSIDE) and bool(error.max() <= BF16_MOST * scale)


def test_fp32_logits_equal_the_reference(nano_lm: LanguageModel, nano_folder: Path) -> None:
    """Logits equal the independent reference: both heads, every position, any rows."""
    reference = ReferenceModel(nano_folder)
    for rows in (mixed_rows(nano_lm), random_rows(nano_lm, 150, 5), random_rows(nano_lm, 1, 6)):
        assert fp32_close(nano_lm.forward(rows), reference.logits(rows))


def test_fp32_logits_of_the_small_size(small_folder: Path) -> None:
    """The same at a width where head grouping and head size are the published ones."""
    lm = load_lm(small_folder)
    rows = random_rows(lm, 48, 7)
    assert fp32_close(lm.forward(rows), ReferenceModel(small_folder).logits(rows))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_wrong_model_is_noticed(nano_lm: LanguageModel, nano_folder: Path, variant: str) -> None:
    """The comparison can fail: each mistake of an earlier port breaks it."""
    rows = mixed_rows(nano_lm)
    wrong = broken_reference(nano_folder, variant).logits(rows)
    assert not fp32_close(nano_lm.forward(rows), wrong)


def test_bf16_logits_are_within_the_frozen_tolerance(nano_folder: Path) -> None:
    """bf16 arithmetic follows the published model's order, within the published tolerance."""
    lm = load_lm(nano_folder, dtype="bfloat16")
    rows = random_rows(lm, 150, 8)
    ours, wanted = lm.forward(rows), ReferenceModel(nano_folder, torch.bfloat16).logits(rows)
    for a, b in zip(ours, wanted, strict=True):
        assert a.dtype == torch.float32
        assert bf16_close(a, b)


def test_the_bf16_tolerance_can_fail(nano_lm: LanguageModel, nano_folder: Path) -> None:
    """A dropped QK norm is far outside the bf16 tolerance too."""
    rows = mixed_rows(nano_lm)
    wrong = broken_reference(nano_folder, "no_qk_norm").logits(rows)
    assert not bf16_close(nano_lm.forward(rows)[0], wrong[0])


def test_the_unselected_channel_never_reaches_the_network(nano_lm: LanguageModel) -> None:
    """Embedding selects one table. The audio id of a text row changes nothing, bit for bit."""
    rows = mixed_rows(nano_lm)
    other = rows.clone()
    text_rows = rows[:, 0] != nano_lm.ids.modality_pad
    other[text_rows, 1] = (other[text_rows, 1] + 7) % nano_lm.config.audio_vocab_size
    for a, b in zip(nano_lm.forward(rows), nano_lm.forward(other), strict=True):
        assert torch.equal(a, b)


def test_later_rows_do_not_change_earlier_logits(nano_lm: LanguageModel) -> None:
    """Causality of trunk and tails."""
    rows = random_rows(nano_lm, 40, 9)
    for whole, part in zip(nano_lm.forward(rows), nano_lm.forward(rows[:25]), strict=True):
        torch.testing.assert_close(whole[:25], part, rtol=0, atol=1e-4)
