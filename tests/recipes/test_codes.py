"""A corpus as codes alone: the same codes, usable for training, never mixed with other codes."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mosslive.rows import RowIds
from recipes.bundled import vocabulary
from recipes.bundled.augment import Augment
from recipes.bundled.bank import Bank
from recipes.bundled.budget import save_carried
from recipes.bundled.codec_model import CodecModel
from recipes.bundled.corpus import DIALOGUES, SPOKEN, Corpus
from recipes.bundled.encode_bank import encode_bank, load_spoken
from recipes.bundled.encode_corpus import encode_corpus, encoder_of
from recipes.bundled.lm_feed import Maker, Sets
from recipes.bundled.lm_rows import SPEAK, Examples
from recipes.bundled.run import run
from recipes.bundled.sizes import TOY
from recipes.bundled.stages import Plan
from recipes.bundled.train_lm import LmTraining

pytestmark = pytest.mark.training


def _encoder(folder: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    model = CodecModel(TOY, 5)
    model.quantiser.codebook.normal_()
    save_carried(folder, "encoder", model.encoder_tensors())
    return folder


def _said(made: Examples) -> Iterator[tuple[int, ...]]:
    """Returns what the assistant says, turn by turn, as codes."""
    places = np.flatnonzero(made.kind == SPEAK)
    for turn in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1):
        yield tuple(made.audio[turn][:-1])  # the last one is the end of speech


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _encoder(tmp_path_factory.mktemp("carried"), 1)


@pytest.fixture(scope="module")
def codes(corpus: Corpus, carried: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("codes") / "codes"
    encode_corpus(corpus, carried, out, 3, size="toy")
    return out


def test_codes_are_those_of_the_bank(bank: Bank, carried: Path, codes: Path) -> None:
    """Streamed and loaded utterances have equal codes; augmented versions exist only of what users
    say in training."""
    model = encoder_of(carried, "toy", torch.device("cpu"))
    wanted, found = encode_bank(model, bank, 1, Augment()), load_spoken(codes / SPOKEN)
    assert np.array_equal(found.count, wanted.count)
    same = [found.of(n) == wanted.of(n) for n in range(len(bank.utterances))]
    assert np.concatenate(same).mean() > 0.99  # roundings of another batch may turn a code
    changed = [
        n for n in range(len(bank.utterances)) if not np.array_equal(found.of(n), found.of(n, 2))
    ]
    assert len(found.codes) == 3
    assert changed
    assert set(changed) <= set(bank.where("user", "train").tolist())


def test_language_model_learns_from_codes_alone(carried: Path, codes: Path, tmp_path: Path) -> None:
    """The language model trains without sound; every other stage fails at once."""
    lm = LmTraining(rate=1e-2, rows=1024, examples=40, typed=20, held_out=4, test_every=20)
    plan = Plan(
        codes, tmp_path / "out", seconds=1e9, size="toy", device="cpu", steps=3,
        resume=carried, reuse_codes=True, lm=lm,
    )  # fmt: skip
    with pytest.raises(ValueError, match="codes and no sound"):
        run(plan, ("vocoder",), together=False)
    assert not plan.out.exists()
    with pytest.raises(ValueError, match="part 2 of 2 continues the part before"):
        run(replace(plan, lm=replace(lm, part=(2, 2))), ("lm",), together=False)
    assert not plan.out.exists()
    run(plan, ("lm",), together=False)
    assert {path.name for path in plan.carried.glob("*.pt")} == {"encoder.0.pt", "lm.0.pt"}
    with pytest.raises(ValueError, match="no sound"):
        _ = Corpus(codes).sound


def test_codes_of_two_encoders_never_meet(corpus: Corpus, codes: Path, tmp_path: Path) -> None:
    """Codes of two encoders fail in a folder and in a run, and leave no files."""
    other = _encoder(tmp_path, 2)
    with pytest.raises(ValueError, match="another encoder"):
        encode_corpus(corpus, other, tmp_path / "mixed", 3, add=[codes], size="toy")
    plan = Plan(codes, tmp_path / "out", 1e9, size="toy", resume=other, reuse_codes=True)
    with pytest.raises(ValueError, match="another encoder"):
        run(plan, ("lm",), together=False)
    assert {path.name for path in tmp_path.iterdir()} == {"encoder.0.pt"}


def test_later_codes_come_behind_the_earlier(
    corpus: Corpus, carried: Path, codes: Path, tmp_path: Path
) -> None:
    """Added codes keep the ids of their utterances; the held-out part of the later corpus is
    dropped."""
    encode_corpus(corpus, carried, tmp_path / "both", 3, add=[codes], size="toy")
    both, found = Corpus(tmp_path / "both"), load_spoken(tmp_path / "both" / SPOKEN)
    one, half = load_spoken(codes / SPOKEN), len(corpus.utterances)
    trained = [u.id for u in corpus.utterances if u.split == "train"]
    assert len(both.utterances) == half + len(trained) == len(found.count)
    assert len(trained) < half
    for number in range(half):
        assert np.array_equal(found.of(number), one.of(number))
    for place, number in enumerate(trained):
        assert both.utterances[half + place].text == corpus.utterances[number].text
        assert np.array_equal(found.of(half + place), one.of(number))
    more = [d for d in corpus.dialogues if d.split == "train"]
    assert len(both.dialogues) == len(corpus.dialogues) + len(more)
    assert [d.split for d in both.dialogues].count("heldout") == len(corpus.dialogues) - len(more)
    for dialogue in both.dialogues:
        for turn in dialogue.turns:
            assert turn.utterances
            assert all(form.text == turn.text for form in both.forms(turn))
    assert len(both.meta["made_of"]) == 2


def test_an_answer_begun_later_is_another_form_of_it(
    corpus: Corpus, carried: Path, codes: Path, tmp_path: Path
) -> None:
    """Each start adds one form, with its own codes, to the assistant's training turns only; the
    first form is unchanged."""
    encode_corpus(corpus, carried, tmp_path / "both", 3, starts=3, size="toy")
    both, found = Corpus(tmp_path / "both"), load_spoken(tmp_path / "both" / SPOKEN)
    one, few = load_spoken(codes / SPOKEN), len(corpus.utterances)
    own = [u for u in corpus.utterances if (u.role, u.split) == ("assistant", "train")]
    assert own
    assert len(both.utterances) == few + 2 * len(own) == len(found.count)
    assert all(np.array_equal(found.of(number), one.of(number)) for number in range(few))
    for number in (1, 2):
        for place, each in enumerate(own):
            later = few + (number - 1) * len(own) + place
            assert (both.utterances[later].text, both.utterances[later].id) == (each.text, later)
            assert found.count[later] - one.count[each.id] in (0, 1)
            assert not np.array_equal(found.of(later), one.of(each.id))
    for before, now in zip(corpus.dialogues, both.dialogues, strict=True):
        for turn, changed in zip(before.turns, now.turns, strict=True):
            trained = turn.role == "assistant" and corpus.forms(turn, "train")
            assert len(changed.utterances) == len(turn.utterances) * (3 if trained else 1)
            assert all(form.text == turn.text for form in both.forms(changed))
    with pytest.raises(ValueError, match="5 starts; allowed: 1 to 4"):
        encode_corpus(corpus, carried, tmp_path / "five", 3, starts=5, size="toy")
    # Training takes any of the forms, and in dialogues the first one most often.
    ids = RowIds.from_config(TOY.lm_config(**vocabulary.ids(vocabulary.load_tokenizer())))
    made = Maker(Sets(tmp_path / "both", tmp_path / "both" / SPOKEN, ids, 600, 0, 1)).make(0)
    said = Counter(_said(made))
    often = [said[tuple(found.of(form))] for form in (own[0].id, few, few + len(own))]
    assert all(often)
    assert often[0] > 2 * max(often[1:])


@pytest.mark.parametrize("order", [(1, 3), (3, 1), (2, 2)])
def test_starts_and_added_codes_keep_their_ids(
    corpus: Corpus, carried: Path, tmp_path: Path, order: tuple[int, int]
) -> None:
    """With different starts per folder every form has the text of its turn and the codes of its
    folder; the note has the starts of each part."""
    for name, starts in zip(("one", "two"), order, strict=True):
        encode_corpus(corpus, carried, tmp_path / name, 1, starts=starts, size="toy")
    first = tmp_path / "one"
    encode_corpus(corpus, carried, tmp_path / "both", 1, starts=order[1], add=[first], size="toy")
    parts = [load_spoken(tmp_path / name / SPOKEN) for name in ("one", "two")]
    both, found = Corpus(tmp_path / "both"), load_spoken(tmp_path / "both" / SPOKEN)
    assert [each.id for each in both.utterances] == list(range(len(found.count)))
    for dialogue in both.dialogues:
        for turn in dialogue.turns:
            assert {form.text for form in both.forms(turn)} == {turn.text}
    begin = len(parts[0].count)
    kept = [u.id for u in Corpus(tmp_path / "two").utterances if u.split == "train"]
    assert len(both.utterances) == begin + len(kept)
    for number in range(begin):
        assert np.array_equal(found.of(number), parts[0].of(number))
    for place, number in enumerate(kept):
        assert np.array_equal(found.of(begin + place), parts[1].of(number))
    assert [each["starts"] for each in both.meta["made_of"]] == list(order)


def test_several_folders_are_added_in_their_order(
    corpus: Corpus, carried: Path, codes: Path, tmp_path: Path
) -> None:
    """Adding several folders at once equals adding them one after another."""
    encode_corpus(corpus, carried, tmp_path / "two", 3, starts=2, size="toy")
    both, step = [codes, tmp_path / "two"], tmp_path / "step"
    encode_corpus(corpus, carried, tmp_path / "together", 3, add=both, size="toy")
    encode_corpus(corpus, carried, step, 3, starts=2, add=[codes], size="toy")
    encode_corpus(corpus, carried, tmp_path / "apart", 3, add=[step], size="toy")
    one, other = Corpus(tmp_path / "together"), Corpus(tmp_path / "apart")
    assert one.utterances == other.utterances
    assert one.dialogues == other.dialogues
    assert one.meta == other.meta
    assert [each["starts"] for each in one.meta["made_of"]] == [1, 2, 1]
    ours, theirs = (load_spoken(tmp_path / name / SPOKEN) for name in ("together", "apart"))
    assert np.array_equal(ours.count, theirs.count)
    for version in range(3):
        for number in range(len(ours.count)):
            assert np.array_equal(ours.of(number, version), theirs.of(number, version))


def test_an_examination_is_not_lost_by_the_order(
    corpus: Corpus, carried: Path, codes: Path, tmp_path: Path
) -> None:
    """The folder with the examination must be first, and no folder may be listed twice."""
    quick = tmp_path / "quick"
    shutil.copytree(codes, quick)
    table = quick / DIALOGUES
    kept = [line for line in table.read_text().splitlines() if '"heldout"' not in line]
    table.write_text("".join(f"{line}\n" for line in kept))
    for add, message in (
        ([quick, codes], f"{codes} has an examination"),
        ([quick], f"{corpus.folder} has an examination"),
        ([codes, codes], "listed twice"),
    ):
        with pytest.raises(ValueError, match=message):
            encode_corpus(corpus, carried, tmp_path / "out", 3, add=add, size="toy")
    assert {path.name for path in tmp_path.iterdir()} == {"quick"}


def test_what_does_not_fit_is_refused_at_once(
    corpus: Corpus,
    folder: Path,
    carried: Path,
    codes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other versions, another grammar, sound instead of codes, or no encoder fail before
    encoding."""

    def refused(match: str, versions: int, add: Path, encoder: Path = carried) -> None:
        with pytest.raises(ValueError, match=match):
            encode_corpus(corpus, encoder, tmp_path / "out", versions, add=[add], size="toy")

    refused("3 versions; --versions is 2", 2, codes)
    refused("0 versions", 0, codes)
    refused("not a folder of codes", 3, folder)
    refused("no encoder", 3, codes, tmp_path)
    monkeypatch.setitem(corpus.meta, "grammar_sha256", "another")
    refused("another grammar", 3, codes)
    assert not list(tmp_path.iterdir())


def test_command_makes_a_folder_once(folder: Path, carried: Path, tmp_path: Path) -> None:
    """The command reports its result and does not overwrite a folder."""
    command: list[str | Path] = [sys.executable, "-m", "recipes.bundled.encode_corpus", folder]
    command += [carried, tmp_path / "out", "--size", "toy", "--device", "cpu"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "2 versions" in made.stdout
    assert json.loads((tmp_path / "out" / "meta.json").read_text())["encoder"]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "exists already" in again.stderr
