"""The logic of `mosslive bench capacity`: load, search, figures, questions and report."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mosslive.bench.capacity import questions as stored
from mosslive.bench.capacity.capacity_report import Capacity
from mosslive.bench.capacity.level import LevelFigures, Promise, held_over_time, level_figures
from mosslive.bench.capacity.load import MOST_TURNS, Load, first_calls, plan_call
from mosslive.bench.capacity.metrics_page import Counters, parse_counters
from mosslive.bench.capacity.outcome import HeardReply, Outcome
from mosslive.bench.capacity.questions import PACKET, RATE_HZ, NoRecording, make_questions
from mosslive.bench.capacity.search import max_kept, next_level
from mosslive.bench.capacity.settings import CapacitySettings
from mosslive.bench.report import text_report
from mosslive.bench.report_html import html_page
from mosslive.bench.talk.parts import needed_pool_s
from mosslive.config.files import ConfigError
from mosslive.talk import FixedSilence, TurnSettings
from mosslive.talk.segmenter import VadSegmenter
from mosslive.talk.turn_detection import Ended, Started
from mosslive.talk.vad import SileroVad


@given(callers=st.integers(1, 300), ramp_s=st.floats(0.1, 60), seed=st.integers(0, 99))
def test_all_callers_arrive_during_the_ramp(callers: int, ramp_s: float, seed: int) -> None:
    """Every caller calls first within the ramp, and a seed gives the same moments again."""
    firsts = first_calls(callers, ramp_s, seed)
    assert len(firsts) == callers
    assert all(0 <= first <= ramp_s for first in firsts)
    assert firsts == first_calls(callers, ramp_s, seed)


def test_first_calls_are_a_poisson_process() -> None:
    """The times between arrivals have the spread of an exponential distribution."""
    between = [b - a for a, b in pairwise(sorted(first_calls(4000, 400.0, 1)))]
    assert mean(between) == pytest.approx(0.1, rel=0.05)
    assert np.std(between) == pytest.approx(0.1, rel=0.1)


def test_calls_follow_the_distributions() -> None:
    """Lengths are within their bounds, and shares and means are those of the settings."""
    load = Load(turns=2.0, interrupted=0.3, left=0.2, seed=3)
    calls = [plan_call(load, caller, number) for caller in range(40) for number in range(50)]
    assert calls[7] == plan_call(load, 0, 7)
    assert mean(len(call.turns) for call in calls) == pytest.approx(2.0, rel=0.1)
    assert max(len(call.turns) for call in calls) <= MOST_TURNS
    turns = [turn for call in calls for turn in call.turns]
    assert all(round(4 / 0.08) <= turn.reply_codes <= round(12 / 0.08) for turn in turns)
    assert mean(call.turns[-1].cut is not None for call in calls) == pytest.approx(0.2, abs=0.03)
    early = [turn.cut is not None for call in calls for turn in call.turns[:-1]]
    assert mean(early) == pytest.approx(0.3, abs=0.03)
    assert mean(turn.pause_s for turn in turns) == pytest.approx(load.pause_s, rel=0.1)


@pytest.mark.parametrize("bad", [{"question_s": (3.0, 2.0)}, {"interrupted": 1.5}, {"turns": 0.5}])
def test_an_impossible_load_is_refused(bad: dict[str, object]) -> None:
    """Bounds in the wrong order, shares above 1 and calls without a question raise an error."""
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Load(**bad)  # type: ignore[arg-type]


@given(most=st.integers(1, 500), capacity=st.integers(0, 600))
def test_the_search_finds_the_largest_load(most: int, capacity: int) -> None:
    """Whatever a device holds, the search ends soon, within an eighth below it."""
    kept: dict[int, bool] = {}
    while (level := next_level(kept, most)) is not None:
        assert level not in kept
        assert 1 <= level <= most
        kept[level] = level <= capacity
        assert len(kept) <= 16
    found, reach = max_kept(kept), min(most, capacity)
    assert found <= reach
    assert reach - found <= max(1, found // 8)


def test_a_level_above_a_broken_one_is_not_held() -> None:
    """Luck at a large load does not hide that a smaller one broke the promise."""
    assert max_kept({8: True, 16: False, 32: True}) == 8
    assert max_kept({8: False}) == 0


def test_held_conversations() -> None:
    """The number of calls at once, and its mean, count only the measured time."""
    calls = [(0.0, 4.0), (2.0, 6.0), (4.0, 12.0)]
    most, average = held_over_time(calls, 2.0, 10.0)
    assert most == 2
    assert average == pytest.approx((2 + 4 + 6) / 8)
    assert held_over_time([], 2.0, 10.0) == (0, 0.0)


def reply(asked_at: float, ttfa_s: float | None, gaps: int = 0, **more: object) -> HeardReply:
    heard = HeardReply(asked_at, ttfa_s, gaps, 0.25 * gaps, 48_000, "heard")
    return replace(heard, **more)  # type: ignore[arg-type]


def figures(sockets: Outcome, local: Outcome | None = None, silence_s: float = 0.0) -> LevelFigures:
    return level_figures(
        4,
        sockets,
        local or Outcome(),
        ramp_s=2.0,
        until_s=10.0,
        waited_s=silence_s,
        wall_s=20.0,
        counters=Counters(1.0, 0.3, {"decode": 5.0}),
        promise=Promise(),
        socket_callers=2,
    )


def test_figures_of_a_level() -> None:
    """Times are of questions after the ramp, without the silence that ends a turn; gaps are of all
    replies; both kinds of callers count."""
    sockets = Outcome([reply(1.0, 9.0, gaps=2), reply(3.0, 0.7)], [(0.0, 9.0)])
    local = Outcome([reply(4.0, 0.8), reply(5.0, None, status="interrupted")], [(1.0, 9.0)])
    found = figures(sockets, local, silence_s=0.5)
    assert found.ttfa_ms == pytest.approx({"p50": 200, "p95": 300, "p99": 300})
    assert (found.gaps, found.gap_s, found.gap_share) == (2, 0.5, 0.25)
    assert (found.socket_gaps, found.server_gaps) == (2, 1.0)
    assert (found.replies, found.interrupted, found.failed) == (4, 1, 0)
    assert (found.held_most, found.reply_s) == (2, 2.0)
    assert found.stage_shares == {"decode": 0.25}
    assert not found.kept


def test_what_keeps_the_promise() -> None:
    """A late or failed reply and a gap break the promise. A refusal keeps it to the others, but the
    load is not held."""
    good = [reply(3.0, 0.4)] * 30
    assert figures(Outcome(good)).holds
    assert not figures(Outcome([*good, *[reply(3.0, 0.6)] * 2])).kept
    assert not figures(Outcome([*good, reply(3.0, 0.4, gaps=1)])).kept
    failed = figures(Outcome([*good, reply(3.0, 0.4, status="failed", fault="x")], faults=["y"]))
    assert (failed.kept, failed.faults) == (False, {"x": 1, "y": 1})
    refused = figures(Outcome([*good, reply(3.0, None, status="refused")], refused=2))
    assert (refused.kept, refused.holds, refused.refused) == (True, False, 3)
    assert not figures(Outcome()).kept  # nothing was heard


def test_outcomes_cross_processes() -> None:
    """What one process heard is the same after JSON."""
    heard = Outcome([reply(1.0, 0.5)], [(0.0, 2.0)], 1, ["x"], 2, 0.01)
    assert Outcome.from_document(json.loads(json.dumps(heard.document()))) == heard


def test_counters_of_a_metrics_page() -> None:
    """Counters are summed over labels, stages kept apart; a page without them has none."""
    page = (
        "# HELP x\nmosslive_underruns_total 3.0\nmosslive_underrun_seconds_total 0.5\n"
        'mosslive_stage_seconds_total{stage="decode"} 2.5\n'
        'mosslive_stage_seconds_total{stage="encode"} 1.0\n'
    )
    read = parse_counters(page)
    assert read == Counters(3.0, 0.5, {"decode": 2.5, "encode": 1.0})
    assert read.since(Counters(1.0, 0.5, {"decode": 2.0})).stages_s == {"decode": 0.5, "encode": 1}
    assert parse_counters("").since(read) == Counters()


def test_each_question_is_one_turn(tmp_path: Path) -> None:
    """Silero's detector hears every question as one turn that ends with it, and the file that other
    processes read has the same samples."""
    load = Load(question_s=(1.0, 4.0), questions=4, seed=5)
    questions = make_questions(load)
    stored.save(tmp_path / "questions.npz", questions)
    again = stored.load_file(tmp_path / "questions.npz")
    assert all(np.array_equal(a, b) for a, b in zip(questions, again, strict=True))
    assert {len(question) % PACKET for question in questions} == {0}
    quiet = np.tile(stored.silence(), 50)
    for question in questions:
        segmenter = VadSegmenter(SileroVad(), TurnSettings(end=FixedSilence(0.5)), RATE_HZ)
        wave = np.concatenate((quiet, question, quiet)).astype(np.float32) / 32768
        signals = segmenter.push(torch.from_numpy(wave), False)
        while segmenter.behind:
            signals += segmenter.push(torch.zeros(0), False)
        turns = [one for one in signals if isinstance(one, Started | Ended)]
        assert [type(one) for one in turns] == [Started, Ended]
        (ended,) = (one for one in turns if isinstance(one, Ended))
        assert ended.speech_end / RATE_HZ == pytest.approx(
            (len(quiet) + len(question)) / RATE_HZ, abs=0.25
        )


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    """A file that is not there raises an error with its name and the option."""
    with pytest.raises(NoRecording, match=r"nothing\.wav: no such file.*--recording"):
        make_questions(Load(), tmp_path / "nothing.wav")


def test_the_pool_follows_the_need() -> None:
    """Replies that begin far apart hold less at once than replies that begin together."""
    whole_s = needed_pool_s(64, 10.0, 0.0)
    assert whole_s >= 64 * 10
    assert needed_pool_s(64, 10.0, 15.0) < whole_s / 2
    assert needed_pool_s(4, 10.0, 15.0) >= 4 * 10  # a few replies: the whole of each


def test_the_report_of_a_curve() -> None:
    """The table, the page and the JSON have every level, and the largest load that is held."""
    settings = CapacitySettings(url="ws://host:1/v1/realtime", levels=(4, 8))
    good = figures(Outcome([reply(3.0, 0.2)]))
    bad = replace(figures(Outcome([reply(3.0, 0.9, gaps=3)], refused=1)), conversations=8)
    capacity = Capacity(settings, (good, bad))
    assert capacity.held == 4
    text = text_report(capacity.as_bench_result())
    assert "mosslive bench capacity --url ws://host:1/v1/realtime --conversations 4,8" in text
    firsts = [line.partition(" ")[0] for line in text.splitlines()]
    assert [first for first in firsts if first in ("4", "8")] == ["4", "8"] * 2
    page = html_page([capacity.as_bench_result()])
    assert page.count("<svg") == 4
    assert "p99: 900 at 8" in page
    document = json.loads(json.dumps(capacity.document()))
    assert document["held"] == 4
    assert [one["holds"] for one in document["levels"]] == [True, False]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"url": "http://x"}, "ws://"),
        ({}, "exactly one"),
        ({"url": "ws://x", "sockets": 2.0}, "share"),
    ],
)
def test_impossible_settings_are_refused(bad: dict[str, object], message: str) -> None:
    """An address that is no socket, no server at all, and a share above 1 raise an error."""
    with pytest.raises(ConfigError, match=message):
        CapacitySettings(**bad)  # type: ignore[arg-type]
