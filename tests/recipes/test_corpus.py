"""The corpus on disk and its plan: what is written is read, and splits are kept. No synthesiser."""

import json
from pathlib import Path

import numpy as np
import pytest

from recipes.bundled import voices
from recipes.bundled.corpus import SAMPLE_RATE_HZ, Corpus, Dialogue, Turn, Utterance, Writer
from recipes.bundled.grammar import every_wording
from recipes.bundled.grammar.lexicon import LEXICON
from recipes.bundled.grammar.rules import plain
from recipes.bundled.grammar.words import NAMES
from recipes.bundled.levelling import LOUDNESS_DBFS, change_rate, level, trim
from recipes.bundled.plan import Plan, make_plan, make_quick_plan
from recipes.bundled.voices import (
    ASSISTANT,
    HELDOUT_USERS,
    QUICK_USERS,
    USERS,
    check_pack,
    spoken_text,
)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(hours=0.6, seed=4, exam_each=30)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Sound, tables and meta are read back unchanged, each utterance with its own sound."""
    sounds = [np.arange(n, dtype=np.int16) - n for n in (5, 0, 9)]
    with Writer(tmp_path) as writer:
        for sound in sounds:
            writer.utterance(sound, "hi", ["hh", "ay"], "hts-slt", "assistant", "train")
        turns = [Turn("user", "hello", [1]), Turn("assistant", "hi", [0, 2])]
        writer.dialogue("chat", "heldout", turns, "word")
        writer.meta["seed"] = 3
    corpus = Corpus(tmp_path)
    assert all(np.array_equal(corpus.pcm(i), sound) for i, sound in enumerate(sounds))
    assert corpus.dialogues == [Dialogue(0, "chat", "heldout", turns, "word")]
    assert [row.id for row in corpus.forms(turns[1], "train")] == [0, 2]
    assert corpus.forms(turns[1], "heldout") == []
    assert corpus.phone_names == ["ay", "hh"]
    assert (corpus.meta["seed"], corpus.meta["samples"]) == (3, 14)


def test_a_cut_corpus_is_refused(tmp_path: Path) -> None:
    """A sound file shorter than its table raises an error."""
    with Writer(tmp_path) as writer:
        writer.utterance(np.zeros(8, np.int16), "hi", ["ay"], "v", "user", "train")
    (tmp_path / "sound.i16").write_bytes(b"\0" * 6)
    with pytest.raises(ValueError, match="3 samples, the table says 8"):
        Corpus(tmp_path)


def test_wrong_rows_are_refused() -> None:
    """Roles, splits and the order of turns are checked when a row is made."""
    with pytest.raises(ValueError, match="role 'robot'"):
        Utterance(0, "", [], "v", json.loads('"robot"'), "train", 0, 0)
    with pytest.raises(ValueError, match="turns go"):
        Dialogue(0, "chat", "train", [Turn("assistant", "hi"), Turn("user", "hi")])


def test_the_plan_keeps_unseen_voices_out_of_training(plan: Plan) -> None:
    """A held-out voice is never in the training split, and every one is examined."""
    by_voice = {(row.line.voice, row.split) for row in plan.utterances}
    assert not {(voice, "train") for voice in HELDOUT_USERS} & by_voice
    assert {(voice, "heldout") for voice in HELDOUT_USERS} <= by_voice
    assert not set(HELDOUT_USERS) & set(USERS)


def test_the_plan_keeps_held_out_words_out_of_training(plan: Plan) -> None:
    """Turns of training dialogues are training utterances, except for added unseen voices."""
    for row in plan.dialogues:
        for turn in row.turns:
            forms = [plan.utterances[i] for i in turn.utterances]
            assert all(form.line.text == turn.text and form.role == turn.role for form in forms)
            trained = [form for form in forms if form.split == "train"]
            if row.split == "train":
                assert trained
                assert all(f.line.voice in HELDOUT_USERS for f in forms if f.split == "heldout")
            elif turn.role == "user":
                assert not trained
                assert {form.line.voice in HELDOUT_USERS for form in forms} == {True, False}


def test_every_wording_is_said_in_a_plan_of_full_size() -> None:
    """A plan of 14 hours has every wording; open words are many, each by few voices."""
    full = make_plan(hours=14, seed=1, exam_each=5)
    trained = [row for row in full.dialogues if row.split == "train"]
    said = {tuple(turn.text for turn in row.turns if turn.role == "user") for row in trained}
    for talk in every_wording(1):
        assert tuple(asked for asked, _ in talk.turns) in said
    spelled = {row.turns[-1].text for row in trained if row.category == "spelling"}
    assert len(spelled) > 250


def test_the_assistant_has_one_voice_and_says_a_thing_one_way(plan: Plan) -> None:
    """The assistant has one recording per answer, never varied."""
    answers = [
        (turn.text, tuple(turn.utterances))
        for row in plan.dialogues
        for turn in row.turns
        if turn.role == "assistant"
    ]
    assert len({text for text, _ in answers}) == len(set(answers))
    spoken = [row.line for row in plan.utterances if row.role == "assistant"]
    assert {(line.voice, line.seed) for line in spoken} == {(ASSISTANT, "")}


def test_the_plan_fills_the_hours_and_is_fixed_by_its_seed(plan: Plan) -> None:
    """The estimated hours are within seconds of those asked; the same seed gives the same plan."""
    assert 0.6 * 3600 <= plan.seconds < 0.6 * 3600 + 30
    again = make_plan(hours=0.6, seed=4, exam_each=30)
    assert (again.utterances, again.dialogues) == (plan.utterances, plan.dialogues)
    assert make_plan(hours=0.6, seed=5, exam_each=30).utterances != plan.utterances


def test_a_quick_plan_is_cheap_and_has_no_examination() -> None:
    """One cheap voice asks each question; nothing is held out, no word is invented, and the hours
    are those asked."""
    plan = make_quick_plan(0.6, 4)
    assert {u.line.voice for u in plan.utterances if u.role == "user"} <= set(QUICK_USERS)
    assert {u.split for u in plan.utterances} == {d.split for d in plan.dialogues} == {"train"}
    asked = [turn for d in plan.dialogues for turn in d.turns if turn.role == "user"]
    once = [turn for turn in asked if len(turn.utterances) == 1]
    assert len(once) > 0.8 * len(asked)  # the others are asked in several dialogues
    assert 0.6 * 3600 <= plan.seconds < 0.62 * 3600
    assert not set(QUICK_USERS) & {ASSISTANT, *HELDOUT_USERS}
    said = {d.turns[0].text for d in plan.dialogues if d.category == "names"}
    names = set(plain(" ".join(NAMES + LEXICON["name"])).split())
    assert all(set(plain(text).split()) & names for text in said)


def test_voices_that_cannot_run_here_are_refused(tmp_path: Path) -> None:
    """A missing pack, or one for another processor, fails early; the locks of all processors have
    the same packages."""
    with pytest.raises(ValueError, match="the folder has no voices"):
        check_pack(tmp_path)
    for name in ("lib/ld.so", "bin/festival"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"\x7fELF")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(ValueError, match="voices of another processor"):
        check_pack(tmp_path)
    recipe = Path(voices.__file__).parent
    locks = [path.read_text().splitlines()[1:] for path in sorted(recipe.glob("voices-*.lock"))]
    assert len(locks) == 2
    assert len({tuple(line.split(" ", 1)[1] for line in lock) for lock in locks}) == 1


def test_spelled_letters_are_named() -> None:
    """Single letters are replaced by their names, which all voices read alike; words stay."""
    assert spoken_text("C, A, T.") == "see, ay, tee."
    assert spoken_text("I am Ann.") == "I am Ann."


@pytest.mark.parametrize("from_hz", [16_000, 22_050, 32_000])
def test_a_tone_keeps_its_pitch_and_length(from_hz: int) -> None:
    """Resampling keeps frequency and duration: 440 Hz stays 440 Hz."""
    time_s = np.arange(from_hz) / from_hz
    tone = (0.2 * np.sin(2 * np.pi * 440 * time_s) * np.hanning(from_hz)).astype(np.float32)
    changed = change_rate(tone, from_hz, SAMPLE_RATE_HZ)
    assert abs(changed.size - SAMPLE_RATE_HZ) <= 2
    spectrum = np.abs(np.fft.rfft(changed))
    assert abs(int(spectrum.argmax()) - 440) <= 1
    assert np.abs(changed).max() == pytest.approx(0.2, rel=0.02)


def test_silence_is_cut_and_loudness_is_common() -> None:
    """Silence around noise is removed, and the loudness is the common one at any input level."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(SAMPLE_RATE_HZ // 2).astype(np.float32)
    silence = np.zeros(SAMPLE_RATE_HZ, np.float32)
    for gain in (0.001, 0.2):
        pcm = level(trim(np.concatenate([silence, noise * gain, silence]).astype(np.float32)))
        assert 0.5 <= pcm.size / SAMPLE_RATE_HZ <= 0.72
        loud = pcm[np.abs(pcm) > 0] / 32767
        assert 20 * np.log10(np.sqrt(np.mean(loud**2))) == pytest.approx(LOUDNESS_DBFS, abs=0.5)
    assert level(trim(silence)).size == 0
