"""`bench turns`: recordings whose turns are known, and what rules do on them."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mosslive import MossliveError
from mosslive.bench.turns.measure import Rule, document, hear, measure, rules
from mosslive.bench.turns.recordings import (
    TURNS,
    KnownTurn,
    Session,
    Speaker,
    make_sessions,
    quiet_places,
    read_folder,
    trimmed,
)
from mosslive.bench.turns.rules import listen, outcomes
from mosslive.talk import AdaptiveSilence, FixedSilence, SemanticEnd, TurnSettings
from tests.talk.rig import LoudVad, frames

Wave = NDArray[np.float32]
WORD = frames((0.32, True))
SENTENCE = frames((0.64, True), (0.064, False), (0.96, True))


class Ear:
    """An end-of-turn model to which every turn is complete."""

    def complete(self, wave: Wave) -> float:
        return 1.0


def test_known_ends() -> None:
    """A made session has its turns where it says: speech up to the end, then silence."""
    speakers = [Speaker("a", [SENTENCE]), Speaker("b", [WORD], words=True)]
    sessions = make_sessions(speakers, 16, seed=3)
    assert [one.name for one in sessions] == ["a", "a", "b", "b"]
    assert all(len(one.turns) == TURNS for one in sessions)
    for session in sessions:
        loud = np.abs(session.wave) > 0.02
        for turn in session.turns:
            assert loud[turn.end - 1600 : turn.end].any()
            assert not loud[turn.end : turn.end + 40_000].any()
            assert not loud[turn.start - 8000 : turn.start].any()
    pauses = [turn.pauses for session in sessions for turn in session.turns]
    assert 0 < sum(pauses) < len(pauses)
    assert len(set(pauses)) > 1
    again = make_sessions(speakers, 16, seed=3)
    np.testing.assert_array_equal(again[0].wave, sessions[0].wave)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 40_000), st.integers(0, 3), st.integers(0, 5))
def test_quiet_places_are_inside(samples: int, count: int, seed: int) -> None:
    """Places are in order, inside the utterance and 0.3 s apart, at most as many as asked for."""
    wave = np.random.default_rng(seed).standard_normal(samples).astype(np.float32)
    places = quiet_places(wave, count)
    assert len(places) <= count
    edges = [0, *places, samples]
    far = all(after - before > 4000 for before, after in pairwise(edges))
    assert far or not places


def test_silence_around_an_utterance_is_cut() -> None:
    """What is left begins and ends with speech."""
    padded = np.concatenate((np.zeros(9000), WORD, np.zeros(9000))).astype(np.float32)
    assert abs(len(trimmed(padded)) - len(WORD)) < 1000


def known(*lengths: tuple[float, bool]) -> Session:
    """A session of one turn: these stretches, then silence."""
    before = frames((0.32, False))
    turn = frames(*lengths)
    wave = np.concatenate((before, turn, frames((2.56, False))))
    return Session("one", wave, (KnownTurn(len(before), len(before) + len(turn)),))


@pytest.mark.parametrize(
    ("pause_s", "end_s", "cut"), [(0.4, 0.3, True), (0.4, 0.5, False), (0.0, 0.3, False)]
)
def test_what_is_cut_off(pause_s: float, end_s: float, cut: bool) -> None:
    """A turn is cut off if its end is detected before its last word; else its wait is the silence
    that the rule asks for, in whole frames, and its speculative reply begins in the last pause."""
    heard = listen(known((0.64, True), (pause_s, False), (0.64, True)), LoudVad())
    (one,) = outcomes(heard, TurnSettings(end=FixedSilence(end_s)), None, 0.0)
    assert one.cut_off == cut
    if cut:
        assert one.wait_s is None
        return
    assert one.wait_s == pytest.approx(end_s, abs=0.033)
    assert one.begun_s == pytest.approx(0.2, abs=0.033)
    assert one.dropped == (pause_s > 0)


@pytest.mark.parametrize(("model_s", "frames_later"), [(0.0, 0), (0.1, 0), (0.3, 5)])
def test_the_time_of_the_model_counts(model_s: float, frames_later: int) -> None:
    """An answer that takes longer than the rest of the wait makes the wait longer."""
    rule = TurnSettings(end=SemanticEnd(soon_s=0.28, brief_s=0, checks_s=(0.12,)))
    heard = listen(known((1.28, True)), LoudVad())
    (one,) = outcomes(heard, rule, Ear(), model_s)
    assert one.wait_s == pytest.approx(0.288 + 0.032 * frames_later, abs=0.001)


def test_all_rules_and_the_document() -> None:
    """Every rule is measured on every turn, and the document has one row of each."""
    sessions = make_sessions([Speaker("a", [SENTENCE])], 8)
    chosen = rules(with_model=True)
    heard, model_s = hear(sessions, chosen, LoudVad(), Ear())
    results = [measure(heard, rule, Ear(), model_s, 0.08) for rule in chosen]
    rows = document(results, {"seed": 0})["rules"]
    assert [row["rule"] for row in rows] == [rule.name for rule in chosen]
    assert {row["turns"] for row in rows} == {8}
    fixed = {row["rule"]: row for row in rows}
    shorter, longer = fixed["silence of 300 ms"], fixed["silence of 1000 ms"]
    assert shorter["cut_off"] >= longer["cut_off"]
    assert shorter["wait_p50"] < longer["wait_p50"]
    assert longer["early_p50"] == longer["wait_p50"] < longer["first_p50"]
    quiet = Session("quiet", np.zeros(16_000, np.float32), (KnownTurn(0, 100),))
    adaptive = Rule("adaptive", TurnSettings(end=AdaptiveSilence()))
    with pytest.raises(MossliveError, match="no turn ended"):
        measure([listen(quiet, LoudVad())], adaptive, None, 0.0, 0.08)


def test_folders(tmp_path: Path) -> None:
    """A recording is an utterance, words with clips, or a session with turns, as its labels say."""
    for name in ("plain", "words", "session"):
        soundfile.write(tmp_path / f"{name}.wav", SENTENCE, 16_000)
    clips = [{"start": 0, "samples": 8000}, {"start": 12_000, "samples": 8000}]
    (tmp_path / "words.json").write_text(json.dumps({"clips": clips}))
    (tmp_path / "session.json").write_text(json.dumps({"turns": [[0.0, 1.5]]}))
    speakers, sessions = read_folder(tmp_path)
    assert [(one.name, len(one.utterances), one.words) for one in speakers] == [
        ("plain", 1, False),
        ("words", 2, True),
    ]
    assert sessions[0].turns == (KnownTurn(0, 24_000),)
    (tmp_path / "plain.json").write_text("{}")
    with pytest.raises(MossliveError, match="neither clips nor turns"):
        read_folder(tmp_path)
    with pytest.raises(MossliveError, match="no recordings"):
        read_folder(tmp_path / "empty")
