"""The letters of a reply as targets of the trunk."""

import numpy as np
import pytest
import torch

from mosslive.rows import Turn as PromptTurn
from recipes.bundled.corpus import Corpus
from recipes.bundled.lm_batch import IGNORED, Mishearing
from recipes.bundled.lm_meant import AHEAD, NOTHING, letters_meant
from recipes.bundled.lm_rows import SPEAK, RowBuilder, Tasks, build_examples
from recipes.bundled.train_lm import losses
from tests.recipes.toy_lm import batches_of, fresh, fresh_meanings


@pytest.mark.parametrize("rows", [3, 7, 20, 40, 90])
def test_letters_run_along_their_sound(rows: int) -> None:
    """The nearest letter is the current one, in order from first to last; the others are ahead by
    their offset, and empty after the end."""
    letters = np.arange(100, 140, dtype=np.int16)
    said = letters_meant(letters, rows)
    assert said.shape == (rows, len(AHEAD))
    now = said[:, AHEAD.index(0)]
    assert now[0] == 100
    assert now[-1] >= 139 - 40 // rows
    assert (np.diff(now) >= 0).all()
    for column, ahead in zip(said.T, AHEAD, strict=True):
        expected = now + ahead
        assert column.tolist() == np.where(expected < 140, expected, NOTHING).tolist()


def test_every_letter_has_a_row() -> None:
    """At the usual pace of three letters in two rows, every letter has a row."""
    letters = np.arange(60, dtype=np.int16)
    assert set(letters_meant(letters, 40).flatten()) == {NOTHING, *range(60)}


def test_a_reply_means_its_own_text(builder: RowBuilder, corpus: Corpus) -> None:
    """Spoken replies have the letters of their text; other rows and the end of speech have none."""
    dialogue = corpus.dialogues[0]
    rows = builder.answer(dialogue, "speech", "speech", "train")
    meant = np.concatenate([segment.meant for segment in rows])
    _, kind = rows.joined()
    assert (kind[(meant != NOTHING).any(1)] == SPEAK).all()
    form = builder.format
    written = form.turn(PromptTurn("user", text=dialogue.turns[-1].text))
    ids = [text for text, _ in written[len(form.header("user")) : -len(form.footer())]]
    codes = int((kind == SPEAK).sum()) - 1
    expected = letters_meant(np.asarray(ids, np.int16), codes)
    nothing = [NOTHING] * len(AHEAD)
    assert meant[kind == SPEAK].tolist() == [*expected.tolist(), nothing]


@pytest.mark.parametrize("noise", [None, Mishearing(dropped=0.2, doubled=0.2)])
def test_a_batch_means_what_its_codes_say(builder: RowBuilder, noise: Mishearing | None) -> None:
    """A letter is at the row that predicts its code, also after simulated hearing errors."""
    made = build_examples(builder, Tasks(0.5, 0, 0, 0, 0, 0.5, 0), 30, "train")
    batch = batches_of(builder, made, 2048).gather(np.arange(6), noise)
    for index in range(6):
        rows = slice(made.first[index], made.first[index] + made.count[index])
        expected = made.meant[rows][made.kind[rows] == SPEAK]
        own = batch.speak.place // batch.text.shape[1] == index
        found = batch.meant[own & (batch.speak.value != IGNORED)]
        assert torch.where(found == IGNORED, NOTHING, found).tolist() == expected.tolist()
        assert (expected != NOTHING).any()


def test_the_loss_of_letters_trains_the_trunk(builder: RowBuilder) -> None:
    """The loss of letters has gradients in the trunk and in neither tail."""
    made = build_examples(builder, Tasks(), 30, "train")
    batch = batches_of(builder, made, 2048).next(Mishearing())
    model = fresh()
    torch.autograd.backward(losses(model, fresh_meanings(), batch).meant)
    moved = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert all(
        name.startswith(("model.shared_block.", "model.embed", "model.audio_embed"))
        for name in moved
    )
    assert any("shared_block" in name for name in moved)
