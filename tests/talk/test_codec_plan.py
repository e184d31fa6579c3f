"""Which steps of the codec start: the plan as a pure function."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.talk.codec_plan import (
    Lane,
    Open,
    PlanSettings,
    Stage,
    Step,
    Work,
    by_stage,
    next_change,
    plan,
)

RULES = PlanSettings()
many = settings(max_examples=200, deadline=None, derandomize=True)
stages: Sequence[Stage] = ("finish", "hear", "first", "render")
some_work = st.lists(
    st.builds(Work, st.just(0), st.sampled_from(stages), st.floats(0, 5), st.booleans()),
    max_size=20,
).map(lambda several: [one._replace(key=key) for key, one in enumerate(several)])
some_busy = st.sets(st.sampled_from(["first", "hear", "render"]))


ALONE = Open(1, 1)


def started(
    work: list[Work], now: float = 0.0, open_: Open = ALONE, *, lanes: bool = True
) -> list[Step]:
    return plan(work, (), open_, now, RULES, lanes=lanes)


@many
@given(some_work, some_busy, st.floats(0, 6), st.booleans())
def test_a_lane_runs_one_step_at_a_time(
    work: list[Work], busy: set[Lane], now: float, lanes: bool
) -> None:
    """A busy lane starts nothing, no lane starts two steps, and no work is in two steps."""
    steps = plan(work, busy, Open(20, 20), now, RULES, lanes=lanes)
    used = [step.lane for step in steps]
    assert len(set(used)) == len(used)
    assert not busy & set(used)
    keys = [key for step in steps for key in step.keys]
    assert len(set(keys)) == len(keys)
    for step in steps:
        lane_of = {"first": "replies", "render": "replies"}
        kinds = {one.stage for one in work if one.key in step.keys}
        assert {lane_of.get(kind, kind) for kind in kinds} == {lane_of.get(step.stage, step.stage)}


@many
@given(some_work, st.floats(0, 6))
def test_work_that_is_due_starts(work: list[Work], now: float) -> None:
    """If all lanes are free, due work starts, or earlier due work of its lane does."""
    steps = plan(work, (), Open(100, 100), now, RULES, lanes=True)
    lanes: set[Lane] = {step.lane for step in steps}
    for stage, several in by_stage(work, (), now, RULES, lanes=True).items():
        if several and several[0].due <= now:
            assert Step(stage, []).lane in lanes


@many
@given(some_work, st.floats(0, 6))
def test_without_lanes_the_earliest_deadline_runs(work: list[Work], now: float) -> None:
    """On a CPU one step starts, and it contains the earliest deadline."""
    steps = plan(work, (), Open(20, 20), now, RULES, lanes=False)
    assert len(steps) == bool(work)
    if work:
        due = {one.key: one.due for one in work}
        earliest = min(due.values())
        finishing = [one for one in work if one.stage == "finish"]
        # The end of a turn goes before blocks of other turns.
        assert min(due[key] for key in steps[0].keys) == earliest or finishing


def test_first_sounds_do_not_wait_for_the_sound_of_others() -> None:
    """First sounds and further chunks start side by side, each in its lane."""
    steps = started([Work(1, "render", 0.3), Work(2, "first", 0.2), Work(3, "hear", 0.05)])
    assert {step.lane: step.keys for step in steps} == {"first": [2], "hear": [3], "render": [1]}


@pytest.mark.parametrize(
    ("ready", "due", "starts"), [(1, 5.0, False), (4, 5.0, False), (5, 5.0, True), (1, 0.35, True)]
)
def test_chunks_wait_for_companions_while_no_listener_needs_them(
    ready: int, due: float, starts: bool
) -> None:
    """Ten replies: a step starts when half of them have a chunk, or one is needed soon."""
    work = [Work(key, "render", due) for key in range(ready)]
    assert bool(started(work, open_=Open(0, 10))) == starts


def test_chunks_that_can_wait_do_not_run_beside_a_first_sound() -> None:
    """While a listener hears nothing yet, only chunks that are needed soon are rendered."""
    later = [Work(key, "render", 5.0) for key in range(10)]
    assert not started(later, open_=Open(0, 10, unheard=1))
    assert started(later, open_=Open(0, 10))
    assert started([*later, Work(10, "render", 0.35)], open_=Open(0, 11, unheard=1))


def test_sound_that_would_run_dry_takes_the_lane_of_first_sounds() -> None:
    """Sound that is needed soon joins no large step, as long as the lane of first sounds is free
    and its step has room."""
    work = [Work(1, "render", 0.1), Work(2, "render", 0.8)]
    (step,) = plan(work, {"render"}, ALONE, 0.0, RULES, lanes=True)
    assert (step.lane, step.keys) == ("first", [1])
    (step,) = plan(work, {"first"}, ALONE, 0.0, RULES, lanes=True)
    assert (step.lane, step.keys) == ("render", [1, 2])
    dry = [Work(key, "render", 0.1 + key / 1000) for key in range(RULES.most_first + 2)]
    first, rest = plan(dry, (), Open(0, 10), 0.0, RULES, lanes=True)
    assert first == Step("first", list(range(RULES.most_first)))
    assert rest == Step("render", [RULES.most_first, RULES.most_first + 1])


def test_replies_that_cannot_overlap_share_one_lane() -> None:
    """First sounds of a vocoder without graphs of their own wait for the step that runs."""
    work = [Work(1, "first", 0.0, overlaps=False), Work(2, "render", 0.05, overlaps=False)]
    assert not plan(work, {"render"}, ALONE, 0.0, RULES, lanes=True)
    (step,) = plan(work, (), ALONE, 0.0, RULES, lanes=True)
    assert (step.lane, step.keys) == ("render", [1, 2])


def test_ends_of_turns_come_before_blocks() -> None:
    """The end of a turn takes the encoder first, even if blocks are due earlier."""
    (step,) = started([Work(1, "hear", 0.0), Work(2, "finish", 0.5)])
    assert (step.stage, step.keys) == ("finish", [2])


def test_work_apart_joins_no_earlier_step() -> None:
    """A reply that may never be heard makes no step longer that is due before it."""
    (step,) = started([Work(1, "render", 0.5, apart=True), Work(2, "render", 0.3)])
    assert step.keys == [2]


def test_a_step_has_a_largest_size() -> None:
    """The most urgent are taken, the others wait for the next step."""
    (step,) = started([Work(key, "first", -key) for key in range(20)])
    assert step.keys == [19 - number for number in range(RULES.most_first)]


@many
@given(some_work, st.floats(0, 6))
def test_work_apart_waits_for_first_sounds(work: list[Work], now: float) -> None:
    """While a listener waits for a first sound, the plan is that without work that is apart and not
    due; its start is then the next change of the plan."""
    waiting = Open(20, 20, unheard=1)
    listened = [one for one in work if not one.apart or one.due <= now]
    assert started(work, now, waiting) == started(listened, now, waiting)
    apart = [one for one in work if one.apart and one.due > now]
    assert next_change(apart, (), waiting, RULES) == min(
        (one.due for one in apart), default=math.inf
    )
