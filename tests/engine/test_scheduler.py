"""The scheduler's rules, as pure functions of candidates and a clock."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.config import SECONDS_PER_CODE as ROW
from mosslive.engine.scheduler import (
    Candidate,
    Limits,
    PageRequest,
    Plan,
    advance_playout,
    due_at,
    headroom_pages,
    misses_deadlines,
    out_of_pages,
    plan,
    select_batch,
    underrun_at,
)
from mosslive.engine.settings import EngineSettings
from mosslive.engine.step_costs import FRESH_S, HALF_S, StepCosts
from mosslive.errors import MossliveError

RULES = EngineSettings(buffer_rows=4, first_rows=0)
many = settings(max_examples=200, deadline=None, derandomize=True)
# Measured against a guess of the same shape, estimates are the guess: 4 ms and 0.5 ms a row.
GUESS = (4.0, 0.5)


def limits(requests: int = 64, rows: int = 256, guess: tuple[float, float] = GUESS) -> Limits:
    return Limits(requests, rows, StepCosts(guess), StepCosts(guess))


def speech(key: int, spoken: int, playout_start: float = 0.0) -> Candidate:
    return Candidate(key, "speech", 0, playout_start, spoken, playout_start)


def text(key: int, waiting_since: float) -> Candidate:
    return Candidate(key, "text", 0, waiting_since)


def appended(key: int, rows: int, waiting_since: float = 0.0) -> Candidate:
    return Candidate(key, "listening", rows, waiting_since)


def waiting_reply(
    key: int, rows: int, waiting_since: float = 0.0, kind: Any = "speech"
) -> Candidate:
    return Candidate(key, kind, rows, waiting_since)


candidate_of_any_kind = st.one_of(
    st.builds(speech, st.just(0), st.integers(1, 40), st.floats(0, 5)),
    st.builds(text, st.just(0), st.floats(0, 5)),
    st.builds(appended, st.just(0), st.integers(1, 300), st.floats(0, 5)),
    st.builds(
        waiting_reply,
        st.just(0),
        st.integers(1, 300),
        st.floats(0, 5),
        st.sampled_from(["speech", "text"]),
    ),
)
some_candidates = st.lists(candidate_of_any_kind, max_size=12).map(
    lambda candidates: [candidate._replace(key=key) for key, candidate in enumerate(candidates)]
)
some_limits = st.builds(
    limits,
    st.integers(1, 8),
    st.integers(1, 200),
    st.tuples(st.floats(0.1, 60), st.floats(0.01, 2)),
)


# Due times.


def test_speech_is_due_a_buffer_before_it_plays() -> None:
    """Row k of a stretch is due (k - buffer_rows) rows after its playout start, a first row when
    the reply arrives."""
    assert due_at(speech(1, spoken=10, playout_start=2.0), RULES) == pytest.approx(2.0 + 6 * ROW)
    assert due_at(Candidate(1, "speech", 0, 3.5), RULES) == 3.5
    assert underrun_at(speech(1, spoken=10, playout_start=2.0)) == pytest.approx(2.0 + 10 * ROW)
    assert underrun_at(Candidate(1, "speech", 0, 3.5)) == math.inf


def test_text_and_appended_rows_may_wait() -> None:
    """A text row is due after text_wait_s, appended rows after gather_s, and rows that a reply
    waits for at once."""
    assert due_at(text(1, 2.0), RULES) == 2.0 + RULES.text_wait_s
    assert due_at(appended(1, 3, 2.0), RULES) == 2.0 + RULES.gather_s
    assert due_at(waiting_reply(1, 3, 2.0, "text"), RULES) == 2.0
    assert underrun_at(text(1, 2.0)) == underrun_at(appended(1, 3, 2.0)) == math.inf


def test_an_underrun_is_counted_once() -> None:
    """A row after an underrun is late, and playout counts from that row on."""
    assert advance_playout(0, 0.0, 5.0) == (1, 5.0, False)
    spoken, playout_start, late = advance_playout(1, 5.0, 5.0 + 3 * ROW)
    assert (spoken, late) == (2, True)
    assert underrun_at(speech(1, spoken, playout_start)) == pytest.approx(5.0 + 4 * ROW)
    assert not advance_playout(spoken, playout_start, 5.0 + 3.5 * ROW)[2]


# The decode batch.


def test_every_reply_gets_a_row_if_there_is_time() -> None:
    """Speech and text share a step."""
    candidates = [speech(1, 8), text(2, 0.0), speech(3, 2)]
    assert plan(candidates, 0.05, limits(), RULES).decode == [1, 2, 3]


def test_text_is_left_out_of_a_step_that_would_cause_an_underrun() -> None:
    """Text that is not due is left out if speech would underrun; text that is due is not."""
    slow = limits(guess=(1.0, 20.0))
    candidates = [speech(1, 2), text(2, 0.0), text(3, 0.0)]
    at = 2 * ROW - 0.03  # 30 ms before the listener has heard all; one row takes 21 ms, two 41
    assert plan(candidates, at, slow, RULES).decode == [1]
    at = 20 * ROW - 0.03
    overdue = [speech(1, 20), text(2, 0.0), text(3, at)]
    assert plan(overdue, at, slow, RULES).decode == [2, 1]


def test_the_most_urgent_first_when_not_all_fit() -> None:
    """If not all replies fit, those with the earliest due times run."""
    candidates = [speech(1, 30), speech(2, 5), speech(3, 9), text(4, -9.0)]
    assert plan(candidates, 0.1, limits(requests=2), RULES).decode == [4, 2]


@many
@given(some_candidates, some_limits, st.floats(0, 10))
def test_a_plan_keeps_to_its_limits(candidates: list[Candidate], most: Limits, now: float) -> None:
    """A plan keeps the limits on requests and rows, names no sequence twice, and decodes a reply
    only when its rows are computed."""
    chosen = plan(candidates, now, most, RULES)
    by_key = {candidate.key: candidate for candidate in candidates}
    allotted = dict(chosen.prefill)
    assert len(chosen.decode) == len(set(chosen.decode)) <= most.requests
    assert len(allotted) == len(chosen.prefill)
    assert sum(allotted.values()) <= most.rows
    for key, rows in chosen.prefill:
        assert 1 <= rows <= by_key[key].pending
    for key in chosen.decode:
        assert by_key[key].kind != "listening"
        assert allotted.get(key, 0) == by_key[key].pending
    assert bool(chosen.decode or chosen.prefill) == bool(
        candidates
    )  # no plan is empty while there is work


@many
@given(some_candidates, some_limits, st.floats(0, 10))
def test_speech_left_out_is_less_urgent(
    candidates: list[Candidate], most: Limits, now: float
) -> None:
    """A speech row left out of a step is due no earlier than any row taken."""
    ready = [candidate for candidate in candidates if not candidate.pending]
    underrun = min(map(underrun_at, candidates), default=math.inf)
    taken = select_batch(ready, now, underrun, most, RULES)
    left = [
        candidate for candidate in ready if candidate not in taken and candidate.kind == "speech"
    ]
    for out in left:
        assert all(due_at(candidate, RULES) <= due_at(out, RULES) for candidate in taken)


# Prefill while replies speak.


@many
@given(some_candidates, some_limits, st.floats(0, 10))
def test_only_overdue_prefill_may_cause_an_underrun(
    candidates: list[Candidate], most: Limits, now: float
) -> None:
    """A step with prefill ends before the first underrun, or prefills at most least_rows that are
    overdue by patience_s."""
    chosen = plan(candidates, now, most, RULES)
    rows = sum(count for _, count in chosen.prefill)
    underrun = min(map(underrun_at, candidates), default=math.inf)
    # Replies that start in this step are not counted: their first row may delay the step.
    already = [key for key in chosen.decode if key not in dict(chosen.prefill)]
    step = most.decode.seconds(len(already), now) + most.prefill.seconds(rows, now)
    first = min(
        (due_at(candidate, RULES) for candidate in candidates if candidate.pending),
        default=math.inf,
    )
    overdue = now - first >= RULES.patience_s
    assert not rows or now + step <= underrun or (overdue and rows <= RULES.least_rows)


def test_prefill_takes_at_most_half_of_a_step_while_speech_is_due() -> None:
    """Prefill is at most as long as decode while speech is due; otherwise it may take all the time
    before the first underrun."""
    waiting = waiting_reply(9, 250)
    behind = plan([speech(1, 3), waiting], 0.0, limits(), RULES)
    assert sum(rows for _, rows in behind.prefill) == 1  # 4.5 ms, as the decode step
    ahead = plan([speech(1, 13), waiting], 0.0, limits(), RULES)
    assert sum(rows for _, rows in ahead.prefill) == 250
    assert plan([waiting], 0.0, limits(rows=64), RULES).prefill == [(9, 64)]


def test_a_speech_reply_is_prefilled_before_everything_else() -> None:
    """Prefill is in order of due time, so a waiting reply is before newly appended rows."""
    candidates = [
        appended(1, 100, waiting_since=0.9),
        waiting_reply(2, 40, waiting_since=1.0),
        waiting_reply(3, 40, 0.8, "text"),
    ]
    assert plan(candidates, 1.0, limits(rows=100), RULES).prefill == [(3, 40), (2, 40), (1, 20)]


def test_a_reply_starts_in_the_step_that_computes_its_last_rows() -> None:
    """No step passes between prefill and first row; sequences without a reply do not decode."""
    candidates = [waiting_reply(1, 10), appended(2, 10), waiting_reply(3, 400, waiting_since=0.1)]
    assert plan(candidates, 1.0, limits(), RULES) == Plan([(1, 10), (3, 246)], [1])


def test_appended_rows_wait_for_a_batch_while_a_reply_speaks() -> None:
    """Appended rows run when the first is due, when a reply waits for rows, or without speech."""
    candidates = [
        speech(1, 30),
        appended(2, 1, waiting_since=1.0),
        appended(3, 1, waiting_since=1.1),
    ]
    assert plan(candidates, 1.2, limits(), RULES).prefill == []
    assert plan(candidates, 1.0 + RULES.gather_s, limits(), RULES).prefill == [(2, 1), (3, 1)]
    waiting = [*candidates, waiting_reply(4, 2, waiting_since=1.2)]
    assert plan(waiting, 1.2, limits(), RULES).prefill == [(4, 2), (2, 1), (3, 1)]
    assert plan(candidates[1:], 1.2, limits(), RULES).prefill == [(2, 1), (3, 1)]


@pytest.mark.parametrize("step_ms", [20.0, 90.0])
def test_no_candidate_starves(step_ms: float) -> None:
    """In overload, with speech always late, text continues and prefill completes."""
    slow = limits(requests=3, guess=(step_ms, 0.01))
    candidates = {key: speech(key, 1) for key in range(4)}
    candidates[10] = text(10, 0.0)
    candidates[20] = waiting_reply(20, 40)
    candidates[30] = appended(30, 40)
    now, rows_of_text = 0.0, 0
    for _ in range(400):
        chosen = plan(list(candidates.values()), now, slow, RULES)
        now += step_ms / 1e3
        for key, rows in chosen.prefill:
            candidates[key] = candidates[key]._replace(pending=candidates[key].pending - rows)
        for key in chosen.decode:
            rows_of_text += key == 10
            candidate = candidates[key]._replace(waiting_since=now)
            if candidate.kind == "speech":
                spoken, playout_start, _ = advance_playout(
                    candidate.spoken, candidate.playout_start, now
                )
                candidate = candidate._replace(spoken=spoken, playout_start=playout_start)
            candidates[key] = candidate
        if 30 in candidates and not candidates[30].pending:
            del candidates[30]
    assert rows_of_text >= 400 * step_ms / 1e3 / (RULES.text_wait_s + 5 * step_ms / 1e3)
    assert 30 not in candidates
    assert candidates[20].spoken > 1


# Pages and admission.


def test_text_ends_before_speech_and_the_newest_first() -> None:
    """If pages run out, text ends before speech and the newest first, until the rest fits."""
    growing = [
        PageRequest(1, speech=True, arrived_at=1.0, pages=1),
        PageRequest(2, speech=False, arrived_at=2.0, pages=1),
        PageRequest(3, speech=False, arrived_at=3.0, pages=2),
        PageRequest(4, speech=True, arrived_at=4.0, pages=1),
    ]
    order = [out_of_pages(growing, free) for free in range(6)]
    assert order == [[3, 2, 4, 1], [3, 2, 4], [3, 2], [3], [3], []]
    assert out_of_pages(growing, free=7, headroom=2) == []
    assert out_of_pages(growing, free=6, headroom=2) == [3]
    assert out_of_pages(growing, free=3, headroom=9) == [3, 2]


@many
@given(
    st.lists(st.builds(PageRequest, st.just(0), st.booleans(), st.floats(0, 9), st.integers(1, 4))),
    st.integers(0, 30),
)
def test_what_stays_fits_and_no_more_is_ended_than_needed(
    given_: list[PageRequest], free: int
) -> None:
    """The pages of the remaining replies are free, and without the last end they would not be."""
    growing = [need._replace(key=key) for key, need in enumerate(given_)]
    ended = out_of_pages(growing, free)
    pages = {need.key: need.pages for need in growing}
    stay = sum(pages.values()) - sum(pages[key] for key in ended)
    assert stay <= free
    assert not ended or stay + pages[ended[-1]] > free


def test_admission_uses_the_estimated_step_time() -> None:
    """Speech is refused if the step estimate exceeds the margin of 80 ms, or above max_speaking."""
    rules = replace(RULES, max_speaking=12, deadline_margin=0.5)
    costs = StepCosts((8.0, 4.0))  # 8 streams: 40 ms, 9 to 16: 72 ms
    assert [misses_deadlines(n, costs, 0.0, rules) for n in (1, 8, 9)] == [False, False, True]
    assert [misses_deadlines(n, StepCosts(GUESS), 0.0, rules) for n in (12, 13)] == [False, True]
    slow = replace(rules, admit_slow_steps=True)
    assert [misses_deadlines(n, costs, 0.0, slow) for n in (9, 12, 13)] == [False, False, True]


def test_a_single_reply_is_refused_only_by_fresh_measurements() -> None:
    """Without speech one reply is admitted, unless several fresh measurements are too slow."""
    costs = StepCosts(GUESS)
    assert not misses_deadlines(1, StepCosts((500.0, 1.0)), 0.0, RULES)  # a guess refuses nothing
    costs.observe(1, 0.4, 1.0)
    assert not misses_deadlines(1, costs, 1.0, RULES)  # nor does a single measurement
    assert not misses_deadlines(2, costs, 1.0, RULES)  # which may be a pause
    for step in range(3):
        costs.observe(1, 0.4, 1.4 + 0.4 * step)
    assert misses_deadlines(1, costs, 2.2 + FRESH_S, RULES)
    assert misses_deadlines(2, costs, 2.2 + FRESH_S, RULES)
    assert not misses_deadlines(1, costs, 2.3 + FRESH_S, RULES)


def test_headroom_is_whole_pages_for_each_reply() -> None:
    """Headroom is given in rows and rounded up to pages for each reply."""
    rules = replace(RULES, headroom_rows=33)
    assert [headroom_pages(n, 16, rules) for n in (0, 1, 5)] == [0, 3, 15]


# Step costs.


def test_costs_follow_what_is_measured() -> None:
    """The first measurement replaces the guess, later ones change it, by powers of two."""
    costs = StepCosts(GUESS)
    assert costs.seconds(0, 0.0) == 0
    assert costs.seconds(8, 0.0) == pytest.approx(0.008)
    costs.observe(8, 0.080, 0.0)
    assert costs.seconds(5, 0.0) == costs.seconds(8, 0.0) == pytest.approx(0.080)
    assert costs.seconds(32, 0.0) == pytest.approx(0.200)  # ten times the guess, as its neighbour
    for _ in range(60):
        costs.observe(7, 0.010, 0.0)
    assert costs.seconds(8, 0.0) == pytest.approx(0.010, rel=1e-3)


def test_one_pause_does_not_change_an_estimate() -> None:
    """One step of 2 s among many of 10 ms leaves the estimate where it was."""
    costs, now = StepCosts(GUESS), 0.0
    for seconds in (0.010, 0.010, 2.0, 0.010):
        now += seconds
        costs.observe(1, seconds, now)
        assert costs.seconds(1, now) == pytest.approx(0.010)


def test_estimates_decay_towards_the_guess_when_idle() -> None:
    """A measurement has full weight while it is fresh, and half of it after each HALF_S."""
    costs = StepCosts(GUESS)
    costs.observe(1, 0.4045, 0.0)
    later = [costs.seconds(1, FRESH_S + n * HALF_S) for n in range(3)]
    assert later == pytest.approx([0.4045, 0.2045, 0.1045])
    assert costs.seconds(1, 1e6) == pytest.approx(0.0045)


def test_measurements_from_before_a_pause_do_not_count() -> None:
    """The first measurement after a pause replaces those from before it."""
    costs = StepCosts(GUESS)
    for step in range(20):
        costs.observe(1, 0.1, 0.1 * step)
    costs.observe(1, 0.005, 10.0)
    assert costs.seconds(1, 10.0) == pytest.approx(0.005)
    assert not costs.is_measured(1, 10.0)


def test_a_stale_size_gives_way_to_a_fresh_neighbour() -> None:
    """An old measurement of a size is mixed with a fresh one of its neighbour."""
    costs = StepCosts(GUESS)
    costs.observe(8, 0.4, 0.0)
    costs.observe(1, 0.0045, FRESH_S + HALF_S)
    assert costs.seconds(8, FRESH_S + HALF_S) == pytest.approx(0.5 * 0.4 + 0.5 * 0.008)


@many
@given(
    st.dictionaries(st.integers(1, 500), st.floats(0, 0.2), max_size=4),
    st.floats(0, 0.3),
    st.integers(1, 600),
)
def test_the_size_found_fits(measured: dict[int, float], seconds: float, most: int) -> None:
    """The size found is at most `most`, and its estimate at most the given time."""
    costs = StepCosts(GUESS)
    for size, took in measured.items():
        costs.observe(size, took, 0.0)
    size = costs.size_within(seconds, most, 1.0)
    assert 0 <= size <= most
    assert not size or costs.seconds(size, 1.0) <= seconds


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_speaking": 0}, "max_speaking is 0; allowed: an integer, 1 or more"),
        ({"buffer_rows": -1}, "buffer_rows is -1; allowed: an integer, 0 or more"),
        ({"ahead_rows": 2.5}, "ahead_rows is 2.5; allowed: an integer"),
        ({"deadline_margin": 1.5}, "deadline_margin is 1.5; allowed: above 0 and at most 1"),
        ({"gather_s": -0.1}, "gather_s is -0.1; allowed: 0 or more seconds"),
        ({"decode_guess_ms": (0, 1)}, "two numbers above 0: ms, and ms per row"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    """The error names the field, its value and the allowed values."""
    with pytest.raises(MossliveError, match=message):
        EngineSettings(**changes)


# First sounds.
