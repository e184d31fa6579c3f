"""How many conversations fit, by the times of steps; and what admission makes of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosslive.engine.step_costs import StepCosts
from mosslive.server.admission import Admission
from mosslive.server.capacity import (
    FIRST_SOUND,
    SETTINGS,
    STAGES,
    Promise,
    at_once,
    capacity,
    first_sound_s,
    load,
    second_chunk_s,
)
from mosslive.server.step_times import StepTimes
from tests.engine.serving import Clock

POINTS = st.dictionaries(st.integers(1, 256), st.floats(1e-5, 0.3), min_size=1, max_size=5)
PIPELINES = st.fixed_dictionaries(dict.fromkeys(STAGES, POINTS))
PROMISES = st.builds(Promise, st.floats(0.05, 2.0), st.sampled_from([1, 2]))

Points = dict[int, float]


def curves(measured: dict[str, Points], factor: float = 1.0) -> dict[str, StepTimes]:
    return {stage: StepTimes(points).scaled(factor) for stage, points in measured.items()}


def linear(decode: float, encode: float, render: float) -> dict[str, StepTimes]:
    """A pipeline whose steps take so many seconds for each conversation in them."""
    seconds = {"decode": decode, "prefill": decode, "encode": encode}
    seconds |= {"render_first": render, "render": render}
    return {stage: StepTimes({1: seconds[stage]}) for stage in STAGES}


@given(POINTS, st.integers(1, 300))
def test_a_curve_is_never_below_what_was_measured(points: Points, size: int) -> None:
    """It meets or exceeds every measured size, and does not fall with the size."""
    curve = StepTimes(points)
    assert all(curve.seconds(one) >= seconds * 0.999 for one, seconds in points.items())
    assert curve.seconds(size) <= curve.seconds(size + 1) * 1.000001
    assert curve.seconds(0) == 0


@given(PIPELINES, PROMISES, st.sampled_from(STAGES), st.data())
def test_slower_steps_never_admit_more(
    measured: dict[str, Points], promise: Promise, stage: str, data: st.DataObject
) -> None:
    """One slower measurement of one stage, or a slowdown at present, admits as many or fewer."""
    held = capacity(curves(measured), 64, promise).conversations
    size = data.draw(st.sampled_from(sorted(measured[stage])))
    points = measured[stage] | {size: measured[stage][size] * data.draw(st.floats(1.0, 9.0))}
    assert capacity(curves(measured | {stage: points}), 64, promise).conversations <= held
    slowdowns = {stage: data.draw(st.floats(1.0, 9.0))}
    assert capacity(curves(measured), 64, promise, slowdowns).conversations <= held


@given(PIPELINES, PROMISES, st.integers(1, 400))
def test_more_conversations_never_cost_less(
    measured: dict[str, Points], promise: Promise, count: int
) -> None:
    """Load, first sound and second chunk grow with the number of conversations."""
    times = curves(measured)
    more = 1.000001
    assert load(count, times, promise.threads) <= load(count + 1, times, promise.threads) * more
    first, then = (first_sound_s(count + one, times, promise) for one in (0, 1))
    assert first <= then * more
    assert second_chunk_s(count, times) <= second_chunk_s(count + 1, times) * more


def test_all_of_a_few_and_most_of_many_speak_at_once() -> None:
    """Up to 18 conversations may all speak at once; of many, two thirds and some more."""
    assert [at_once(count, 2 / 3) for count in (1, 5, 18, 256)] == [1, 5, 18, 194]


def test_what_limits_is_named() -> None:
    """The part that is busiest limits, or the time to the first sound, or the settings."""
    fast, promise = 1e-5, Promise(0.5, 1)
    held = capacity(linear(fast, fast, 0.02), 64, promise)
    assert (held.limited_by, held.conversations) == ("rendering", 8)
    assert held.shares["rendering"] > 0.9 * sum(held.shares.values())
    assert "holds 8 conversations (rendering " in held.sentence()
    assert capacity(linear(0.02, fast, fast), 64, Promise(9.0, 1)).limited_by == "language model"
    assert capacity(linear(fast, 0.05, fast), 64, Promise(9.0, 1)).limited_by == "encoder"
    assert capacity(linear(0.005, fast, fast), 64, Promise(0.1, 1)).limited_by == FIRST_SOUND
    held = capacity(linear(fast, fast, fast), 64, promise)
    assert (held.limited_by, held.conversations) == (SETTINGS, 64)


def test_two_threads_hold_more_than_one_device() -> None:
    """Where the engine and the codec compute side by side, only the busier of them counts."""
    times = linear(0.01, 0.001, 0.05)
    one, two = (capacity(times, 64, Promise(9.0, threads)).conversations for threads in (1, 2))
    assert one < two


class Live:
    """Admission by measurements that a test makes."""

    def __init__(self, times: dict[str, StepTimes]) -> None:
        self.clock = Clock()
        self.costs = {stage: StepCosts((10.0, 1.0)) for stage in STAGES}
        self.times = times
        self.admission = Admission(times, self.costs, 64, Promise(0.5, 1), self.clock)

    def measure(self, slower: float, seconds: int) -> int:
        """Steps of size 4 take so many times longer, for so many seconds. Returns the capacity."""
        for _ in range(seconds):
            for _ in range(4):
                self.clock.now += 0.25
                for stage, costs in self.costs.items():
                    costs.observe(4, slower * self.times[stage].seconds(4), self.clock.now)
            self.admission.capacity()
        return self.admission.capacity().conversations


def test_capacity_follows_measurements_and_recovers() -> None:
    """A machine that becomes slow holds fewer, soon but not at once; later it holds as many as at
    start, and never more."""
    live = Live(linear(0.001, 0.001, 0.01))
    start = live.admission.at_start.conversations
    assert live.measure(1.0, 10) == live.measure(0.2, 10) == start
    assert live.measure(3.0, 1) > live.measure(3.0, 20) == pytest.approx(start / 2.5, abs=1.5)
    live.clock.now += 60
    live.admission.capacity()
    assert live.measure(1.0, 30) == start


def test_those_inside_leave_room_for_the_rest() -> None:
    """One conversation is always let in; beyond the capacity the refusal says why."""
    live = Live(linear(0.001, 0.001, 0.01))
    held = live.admission.at_start.conversations
    assert live.admission.refusal(held - 1) is None
    refusal = live.admission.refusal(held)
    assert refusal is not None
    assert f"holds {held} conversations" in refusal
    assert "limited by rendering" in refusal
    hopeless = Live(linear(1.0, 1.0, 1.0)).admission
    assert hopeless.at_start.conversations == 0
    assert hopeless.refusal(0) is None
    assert hopeless.refusal(1) is not None
