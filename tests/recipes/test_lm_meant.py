"""What a spoken reply means: letters of its text along its codes, for the text head."""

import numpy as np
import pytest
import torch

from mosslive.rows import Turn as PromptTurn
from recipes.bundled.corpus import Corpus
from recipes.bundled.lm_batch import IGNORED, Mishearing
from recipes.bundled.lm_rows import (
    NOTHING,
    SPEAK,
    RowBuilder,
    Tasks,
    build_examples,
    letters_meant,
)
from tests.recipes.toy_lm import batches_of


@pytest.mark.parametrize("rows", [3, 7, 20, 40, 90])
def test_letters_run_ahead_of_their_sound(rows: int) -> None:
    """In their order, the first one first; never behind, and ahead wherever anything is left; when
    the text has ended, nothing is meant."""
    letters = np.arange(100, 140, dtype=np.int16)
    said = letters_meant(letters, rows)
    assert len(said) == rows
    kept = said[said != NOTHING]
    assert kept[0] == 100
    assert (np.diff(kept) >= 0).all()
    in_time = 100 + np.arange(rows) * 40 // rows
    assert (kept >= in_time[: len(kept)]).all()
    assert (kept[6:] >= in_time[12 : 6 + len(kept)][: len(kept[6:])]).all()
    assert (said[len(kept) :] == NOTHING).all()
    assert 0 < rows - len(kept) <= 6


def test_a_reply_means_its_own_text(builder: RowBuilder, corpus: Corpus) -> None:
    """Every spoken reply has the letters of what is said, and no other row has any; the end of
    speech means nothing."""
    dialogue = corpus.dialogues[0]
    rows = builder.answer(dialogue, "speech", "speech", "train")
    meant = np.concatenate([segment.meant for segment in rows])
    _, kind = rows.joined()
    assert (kind[meant != NOTHING] == SPEAK).all()
    form = builder.format
    written = form.turn(PromptTurn("user", text=dialogue.turns[-1].text))
    ids = [text for text, _ in written[len(form.header("user")) : -len(form.footer())]]
    codes = int((kind == SPEAK).sum()) - 1
    expected = letters_meant(np.asarray(ids, np.int16), codes)
    assert meant[kind == SPEAK].tolist() == [*expected.tolist(), NOTHING]


@pytest.mark.parametrize("noise", [None, Mishearing(dropped=0.2, doubled=0.2)])
def test_a_batch_means_what_its_codes_say(builder: RowBuilder, noise: Mishearing | None) -> None:
    """A letter stands at the place that predicts the code it belongs to, however misheard."""
    made = build_examples(builder, Tasks(0.5, 0, 0, 0, 0, 0.5, 0), 30, "train")
    batch = batches_of(builder, made, 2048).gather(np.arange(6), noise)
    for index in range(6):
        rows = slice(made.first[index], made.first[index] + made.count[index])
        expected = made.meant[rows][made.kind[rows] == SPEAK]
        own = batch.speak.place // batch.text.shape[1] == index
        found = batch.meant[own & (batch.speak.value != IGNORED)]
        assert torch.where(found == IGNORED, NOTHING, found).tolist() == expected.tolist()
        assert (expected != NOTHING).any()
