"""`mosslive bench bundled` from end to end on random weights, with fake judges.

Tests that every part runs through the real model, codec and pipeline and yields its figures with
their numbers of questions. The values mean nothing.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from mosslive.bench.report import text_report
from mosslive.bench.report_html import html_page
from mosslive.build import Fp8Options
from mosslive.checkpoint import synthesise, take_inventory
from mosslive.checkpoint.faults import FailedProbes
from mosslive.codec import Sound, load_codec, write_sound
from mosslive.config.folders import DEFAULT_VOICE, VOICES_FOLDER
from mosslive.errors import MossliveError
from recipes.bundled.corpus import Turn, Writer
from recipes.bundled.exam import asker, compare, conversations, human, live, measure
from recipes.bundled.exam.examiner import Examiner
from recipes.bundled.exam.folder import KINDS
from recipes.bundled.exam.judges import Judges, Wave
from recipes.bundled.exam.measure import ExamResult, ExamSettings, measure_exam
from recipes.bundled.exam.rendering import Rendering
from tests.codec.conftest import quick_codec

RATE_HZ = 24_000
# How each dialogue is held out, and its category.
_KINDS = (
    *((kind, "any") for kind in ("wording", "frame", "pair", "word", "")),
    ("word", "spelling"),
)


class _Deaf(Judges):
    """Returns one fixed transcript and counts the calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = 0

    def transcribe(self, wave: Wave, rate_hz: int) -> str:
        assert np.isfinite(wave).all()
        assert rate_hz == RATE_HZ
        self.asked += 1
        return "Yes."

    def rate(self, wave: Wave, rate_hz: int, pause_s: float = 0.25) -> float:
        return 3.0 if pause_s else 2.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("model")
    synthesise(out, "nano")
    quick_codec(out)
    noise = torch.randn(RATE_HZ, generator=torch.Generator().manual_seed(0)) * 0.1
    (out / VOICES_FOLDER).mkdir()
    load_codec(out).voice(Sound(noise, RATE_HZ)).save(out / VOICES_FOLDER / DEFAULT_VOICE)
    return out


@pytest.fixture(scope="module")
def exam(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One dialogue of each kind, one of them with two turns; half of the answers are yes."""
    out = tmp_path_factory.mktemp("exam")
    generator = np.random.default_rng(0)

    def sound() -> np.ndarray[tuple[int, ...], np.dtype[np.int16]]:
        return generator.integers(-3000, 3000, 9000).astype(np.int16)

    with Writer(out) as writer:
        for number, (kind, category) in enumerate(_KINDS):
            turns = []
            for _ in range(2 if number == 1 else 1):
                voices = ("seen", "new") if kind else ("new",)
                utterances = [
                    writer.utterance(sound(), "is it", ["x"], voice, "user", "heldout")
                    for voice in voices
                ]
                answer = "Yes." if number % 2 == 0 else "No."
                synthesised = writer.utterance(
                    sound(), answer, ["x"], "synthesised", "assistant", "heldout"
                )
                turns += [
                    Turn("user", "is it", utterances),
                    Turn("assistant", answer, [synthesised]),
                ]
            writer.dialogue(category, "heldout" if kind else "train", turns, kind)
        writer.meta = {"unseen_voices": ["new"]}
    return out


@pytest.fixture(scope="module")
def humans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("judges")
    (out / "human").mkdir()
    for name in human.TEXTS:
        write_sound(out / "human" / f"{name}.wav", np.full(8000, 0.01, np.float32), 16_000)
    return out


def _run(
    monkeypatch: pytest.MonkeyPatch, model: Path, exam: Path, humans: Path, *parts: str
) -> ExamResult:
    for place in (asker, live):
        monkeypatch.setattr(place, "MOST_ROWS", 9)
    monkeypatch.setattr(measure, "Judges", _Deaf)
    settings = ExamSettings(
        exam, str(model), humans, parts, answers=exam / "answers.jsonl", threads=1
    )
    return measure_exam(settings)


def _named(result: ExamResult) -> dict[str, float]:
    names = [figure.name for figure in result.figures]
    assert len(set(names)) == len(names), "two figures of one name"
    return {figure.name: figure.value for figure in result.figures}


@pytest.mark.usefixtures("untraced")
def test_answers_are_asked_heard_and_counted(
    monkeypatch: pytest.MonkeyPatch, model: Path, exam: Path, humans: Path
) -> None:
    """Every set has its figures, replies that do not end are counted, each answer is written to the
    file, and report and page hold every figure."""
    result = _run(monkeypatch, model, exam, humans, "answers")
    found = _named(result)
    assert found["speech to speech, unseen wording: exact words heard"] == 100
    assert found["speech to speech, unseen polite phrase: exact words heard"] == 0
    assert found["replies that do not end"] > 0
    clear = "right, where the synthesiser is understood"
    assert found[f"speech to speech, unseen wording: {clear}"] == 100
    assert f"speech to speech, names and words never heard: {clear}" not in found
    assert found["DNSMOS overall of spoken replies"] == 3
    assert found["DNSMOS overall of spoken replies, without the pause around them"] == 2
    assert all(figure.few and figure.part == "answers" for figure in result.figures)
    lines = [json.loads(line) for line in (exam / "answers.jsonl").read_text().splitlines()]
    assert len(lines) == 10
    assert {line["kind"] for line in lines} == set(KINDS)
    report, page = text_report(result.as_table()), html_page([result.as_table()])
    assert all(name in report and "fewer than 200" in report for name in found)
    assert page.count("<tr>") > len(found)
    assert json.loads(json.dumps(result.document()))["figures"]


@pytest.mark.usefixtures("untraced")
def test_the_other_parts_run(
    monkeypatch: pytest.MonkeyPatch, model: Path, exam: Path, humans: Path
) -> None:
    """The parts text, reference, hearing, codec, sampling and human yield their figures."""
    monkeypatch.setattr(compare, "RENDERINGS", (Rendering(), Rendering(tail="cached")))
    parts = ("text", "reference", "hearing", "codec", "sampling", "human")
    result = _run(monkeypatch, model, exam, humans, *parts)
    assert not result.refused
    found = _named(result)
    assert {figure.part for figure in result.figures} == set(parts)
    assert 0 <= found["codes heard live that differ from those of the whole turn"] < 50
    assert found["person, beckett: word error rate of the recording"] == 100
    assert any("cached tail" in name for name in found)
    for mode in ("speech to text", "text to speech"):
        assert f"{mode}, sums never trained: right" in found
    label = "reference: right answers by the codec, starting half a code later"
    assert found[f"{label}, unseen wording: exact words heard"] == 100
    # The transcript is not the text, but it equals that of the right answer.
    assert found[f"{label}, names and words never heard: exact words heard"] == 0
    assert found[f"{label}, names and words never heard: right"] == 100


@pytest.mark.parametrize("passes_from", [0, 1, 9])
def test_as_much_is_float8_as_the_builder_accepts(
    monkeypatch: pytest.MonkeyPatch, model: Path, passes_from: int
) -> None:
    """The build keeps as many of the last trunk layers in float8 as the builder accepts and names
    them. If none passes, the builder's error is raised."""
    kept: list[tuple[str, ...]] = []

    def build(*_: object, fp8: Fp8Options) -> None:
        kept.append(fp8.keep.names)
        if len(fp8.keep.names) < passes_from:
            raise FailedProbes(["audio"], "allowed", ["audio head: error 0.2"])

    monkeypatch.setattr(compare, "build_engine", build)
    examiner = cast(Examiner, SimpleNamespace(parts=SimpleNamespace(model=model)))
    layers = take_inventory(model).config.num_shared_layers
    if passes_from < layers:
        said = compare.build_fp8(examiner, Path("never"))
        assert said == f"last {layers - passes_from} of {layers} trunk layers in float8"
        assert kept[-1] == tuple(f"trunk.{n}" for n in range(passes_from))
    else:
        with pytest.raises(FailedProbes):
            compare.build_fp8(examiner, Path("never"))
        assert len(kept) == layers


@pytest.mark.usefixtures("untraced")
def test_conversations_are_held(
    monkeypatch: pytest.MonkeyPatch, model: Path, exam: Path, humans: Path
) -> None:
    """Each kind of conversation has a figure for its first turn and one for the later ones, and the
    model's transcripts have theirs."""
    monkeypatch.setattr(conversations, "_MOST", conversations.TURNS)
    result = _run(monkeypatch, model, exam, humans, "conversations")
    assert not result.refused
    counts = {figure.name: figure.count for figure in result.figures}
    for mode in ("text to text", "speech to text", "speech to speech"):
        assert counts[f"conversations, {mode}, first turn: right"] == 1
        assert counts[f"conversations, {mode}, turns 2 to 8: right"] == 7
    assert counts["the model's transcripts of questions: word error rate"] == 1


def test_a_live_conversation_is_timed(
    monkeypatch: pytest.MonkeyPatch, model: Path, exam: Path, humans: Path
) -> None:
    """A live conversation is timed; a part that fails is reported and loses no other figure."""

    def no_build(*_: Sequence[object]) -> str:
        raise MossliveError("no float8 here")

    monkeypatch.setattr(live, "build_fp8", no_build)
    result = _run(monkeypatch, model, exam, humans, "live")
    found = _named(result)

    assert 0 < found["live: time to first audio, median"] < 60
    assert result.refused == ("live: no float8 here",)
