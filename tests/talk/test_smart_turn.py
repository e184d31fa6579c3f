"""The end-of-turn model: its input, when it is asked, and what its answer does to a turn."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mosslive import MossliveError
from mosslive.talk import AdaptiveSilence, FixedSilence, SemanticEnd, TurnSettings
from mosslive.talk.end_checks import CheckTimes, EndChecks
from mosslive.talk.segmenter import VadSegmenter
from mosslive.talk.smart_turn import SmartTurn, features, is_installed
from mosslive.talk.turn_detection import Ended, TurnState, learn, step
from mosslive.talk.vad import FRAME_SAMPLES as FRAME
from tests.talk.rig import Later, LoudVad, frames

GOLDEN = Path(__file__).parents[1] / "golden" / "smart_turn_features.json"
LOUD, SOFT, BETWEEN = 0.9, 0.1, 0.4
RULE = SemanticEnd(soon_s=0.25, brief_s=0, checks_s=(0.12, 0.5), otherwise=AdaptiveSilence())
SEMANTIC = TurnSettings(end=RULE)
TIMES = CheckTimes.of(SEMANTIC)
assert TIMES is not None
Wave = NDArray[np.float32]


def sound(seconds: float) -> Wave:
    at = np.arange(int(16_000 * seconds)) / 16_000
    voice = np.sin(2 * np.pi * (180 + 40 * np.sin(3 * at)) * at) * np.abs(np.sin(2.2 * at))
    return (0.3 * voice + 0.02 * np.sin(2 * np.pi * 2900 * at)).astype(np.float32)


class Told:
    """An end-of-turn model that gives these answers, the last again and again."""

    def __init__(self, *answers: float) -> None:
        self.answers, self.heard = [*answers], list[Wave]()

    def complete(self, wave: Wave) -> float:
        self.heard.append(wave)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize("seconds", ["0.5", "3.1", "11.0"])
def test_features_are_those_of_the_publishers(seconds: str) -> None:
    """The features equal those of the code in the model's own wheel, for sound shorter and longer
    than 8 s."""
    golden = json.loads(GOLDEN.read_text())["sounds"][seconds]
    made = features(sound(float(seconds)))
    assert made.shape == (80, 800)
    assert made.dtype == np.float32
    found = [float(made[band, frame]) for band, frame in golden["places"]]
    np.testing.assert_allclose(
        found, golden["values"], atol=1e-4
    )  # our window is float32: leakage of a pure tone
    assert made.mean(dtype=np.float64) == pytest.approx(golden["mean"], abs=1e-6)
    assert made.std(dtype=np.float64) == pytest.approx(golden["std"], abs=1e-6)


@pytest.mark.skipif(not is_installed(), reason="pipecat-ai, which has the model, is not installed")
def test_the_model_tells_an_end_from_its_file() -> None:
    """The network of the installed wheel takes our features and returns a probability."""
    answers = [SmartTurn().complete(sound(seconds)) for seconds in (1.0, 9.0)]
    assert all(0 <= answer <= 1 for answer in answers)


def test_without_its_file_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel the model is refused with the command that installs it."""
    from mosslive.talk import smart_turn

    monkeypatch.setattr(smart_turn, "_file", lambda: None)
    smart_turn._session.cache_clear()
    with pytest.raises(MossliveError, match=r"pip install 'mosslive\[smart-turn\]'"):
        SmartTurn()


def asked(heard: list[float], model: Told, later: Later | None = None) -> EndChecks:
    assert TIMES is not None
    checks = EndChecks(model, TIMES, later)
    for number, probability in enumerate(heard):
        checks.push(np.full(FRAME, number, np.float32), probability)
    return checks


def test_the_model_is_asked_in_pauses_only() -> None:
    """It is asked once at each length of silence after speech: not in speech, not after a click,
    and not in the silence after that."""
    model = Told(0.5)
    checks = asked([SOFT] * 30 + [LOUD] * 10 + [SOFT] * 60 + [LOUD] * 2 + [SOFT] * 60, model)
    assert [position for position, _ in checks.take()] == [44 * FRAME, 56 * FRAME]
    assert checks.take() == []


def test_the_model_hears_the_turn_so_far() -> None:
    """It hears the turn from 0.5 s before its first loud frame, at most the last 8 s."""
    model = Told(0.5)
    asked([SOFT] * 100 + [LOUD] * 10 + [BETWEEN] * 2 + [SOFT] * 4, model)
    assert model.heard[0][0] == 100 - 16
    assert model.heard[0][-1] == 115
    asked([LOUD] * 300 + [SOFT] * 4, model)
    assert len(model.heard[1]) == 8 * 16_000


def test_answers_come_later_and_old_questions_are_dropped() -> None:
    """The model runs on a thread; a question that waits there is replaced by the next one."""
    later, model = Later(), Told(0.7)
    checks = asked([LOUD] * 10 + [SOFT] * 20, model, later)
    assert checks.take() == []
    while later.step():
        pass
    assert checks.take() == [(26 * FRAME, 0.7)]
    assert len(model.heard) == 1


def signals(heard: list[float], *answers: float, rule: SemanticEnd = RULE) -> list[tuple[int, str]]:
    """Number of the frame and name of each signal, with a model that answers at once."""
    turns, model = TurnSettings(end=rule), Told(*answers)
    times = CheckTimes.of(turns)
    assert times is not None
    checks, state, found = EndChecks(model, times, None), TurnState(), []
    for number, probability in enumerate(heard):
        checks.push(np.zeros(FRAME, np.float32), probability)
        for position, complete in checks.take():
            state = learn(state, position, complete)
        state, some = step(state, probability, turns)
        found += [(number, type(one).__name__) for one in some]
    return found


def test_a_complete_turn_ends_soon_and_another_by_adaptive_silence() -> None:
    """The latest answer in the pause decides; without a sure one the adaptive rule does."""
    heard = [LOUD] * 20 + [SOFT] * 40
    assert signals(heard, 0.9)[-1] == (20 + 7, "Ended")  # 0.25 s
    assert signals(heard, 0.1)[-1] == (20 + 18, "Ended")  # 0.6 s, for a new speaker
    assert signals(heard, 0.1, 0.9)[-1] == (20 + 15, "Ended")  # the second question, at 0.5 s
    again = [LOUD] * 20 + [SOFT] * 5 + [LOUD] * 10 + [SOFT] * 40
    assert signals(again, 0.9, 0.1)[-1][0] == 35 + 18, "an answer holds for its own pause"
    guarded = replace(RULE, brief_s=0.65)
    assert signals(heard, 0.9, rule=guarded)[-1] == (20 + 18, "Ended"), "0.64 s are too brief"
    assert signals([LOUD, *heard], 0.9, rule=guarded)[-1] == (21 + 7, "Ended")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from([LOUD, SOFT, BETWEEN]), max_size=120),
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
)
def test_a_model_only_makes_turns_end_sooner(heard: list[float], answers: list[float]) -> None:
    """Until its first end a turn begins and pauses as by the adaptive rule, and ends no later."""
    with_model = signals(heard, *answers)
    never = signals(heard, 0.0)
    ends = [frame for frame, name in with_model if name == "Ended"]
    first = ends[0] if ends else len(heard)
    assert [one for one in with_model if one[0] < first] == [one for one in never if one[0] < first]
    assert all(frame >= first for frame, name in never if name == "Ended")


def test_a_segmenter_with_a_model() -> None:
    """The segmenter asks the model about the sound that it has, and ends the turn by the answer."""
    wave = frames((0.64, True), (0.64, False))
    for answer, end in ((1.0, 20 + 8), (0.0, 20 + 19)):
        assert TIMES is not None
        checks = EndChecks(model := Told(answer), TIMES, None)
        segmenter = VadSegmenter(LoudVad(), SEMANTIC, 16_000, checks)
        ends = []
        for number, first in enumerate(range(0, len(wave), FRAME), 1):
            for item in segmenter.push(torch.from_numpy(wave[first : first + FRAME]), False):
                if isinstance(item, Ended):
                    ends.append(number)
        assert ends == [end]
        np.testing.assert_array_equal(model.heard[0], wave[: 24 * FRAME])


def test_only_the_semantic_rule_has_checks() -> None:
    """Rules of silence do not use the model."""
    assert CheckTimes.of(TurnSettings(end=FixedSilence())) is None
    assert CheckTimes.of(TurnSettings(end=AdaptiveSilence())) is None
    assert CheckTimes(0.5, 0.35, (4, 16), 4, 47) == TIMES
