"""What the scheduler leaves out of a step while a listener waits for a first sound, and when small
steps rest."""

import math

from hypothesis import given
from hypothesis import strategies as st

from mosslive.engine.scheduler import (
    Candidate,
    Limits,
    Pace,
    Plan,
    due_at,
    is_urgent,
    plan,
    rest_end,
    select_batch,
    underrun_at,
)
from mosslive.engine.settings import EngineSettings
from tests.engine.test_scheduler import (
    candidate_of_any_kind,
    limits,
    many,
    some_candidates,
    some_limits,
    speech,
    text,
    waiting_reply,
)

FIRST = EngineSettings(buffer_rows=4, first_rows=8, spare_rows=10)


def test_speech_that_is_ahead_waits_for_a_first_sound() -> None:
    """While a listener hears nothing yet, a step takes no reply that is far ahead, unless the step
    is little longer: four replies are estimated as three, and the least ahead goes first."""
    new, less, late = speech(0, 3, 0.9), speech(1, 20, 0.0), speech(2, 9, 0.0)
    ahead = [speech(key, 60 - (key == 7), 0.0) for key in range(3, 10)]
    taken = select_batch([*ahead, new, less, late], 1.0, math.inf, limits(guess=(1, 1)), FIRST)
    assert {candidate.key for candidate in taken} == {0, 1, 2, 7}


def test_all_speech_runs_if_a_smaller_step_is_not_shorter() -> None:
    """A reply that is ahead runs with a first sound where it costs nothing."""
    new, ahead = speech(0, 3, 0.9), speech(1, 60, 0.0)
    taken = select_batch([ahead, new], 1.0, math.inf, limits(guess=(10.0, 0.01)), FIRST)
    assert {candidate.key for candidate in taken} == {0, 1}


@many
@given(some_candidates, some_limits, st.floats(0, 6))
def test_a_first_sound_leaves_out_nothing_that_is_due(
    candidates: list[Candidate], most: Limits, now: float
) -> None:
    """Speech that a first sound delays is ahead of its buffer."""
    ready = [candidate for candidate in candidates if not candidate.pending]
    taken = select_batch(ready, now, math.inf, most, FIRST)
    if len(taken) < most.requests:
        left = [candidate for candidate in ready if candidate not in taken]
        assert all(due_at(candidate, FIRST) > now for candidate in left)


def rested(ready: list[Candidate], speaking: int = 8, decoded_at: float = 0.99) -> float:
    return rest_end(ready, 1.0, Pace(speaking, decoded_at), EngineSettings())


def test_small_steps_of_speech_that_is_ahead_are_spread_out() -> None:
    """A few replies far ahead wait rest_s after the step before; a full step, a lone reply, a first
    sound, speech with little lead and text do not wait."""
    ahead = [speech(key, 60, 0.0) for key in range(3)]
    assert rested(ahead) == 0.99 + EngineSettings().rest_s
    assert rested(ahead, decoded_at=0.0) < 1.0
    assert rested([speech(key, 60, 0.0) for key in range(16)]) == -math.inf
    assert rested(ahead, speaking=3) == -math.inf
    for one in (speech(9, 3, 0.9), speech(9, 25, 0.0), text(9, 0.99)):
        assert rested([*ahead, one]) == -math.inf
    assert rested([]) == -math.inf


def test_a_rest_delays_no_prefill() -> None:
    """While speech rests, appended rows that are due are computed, and their reply begins."""
    ahead = [speech(key, 60, 0.0) for key in range(3)]
    chosen = plan(
        [*ahead, waiting_reply(9, 5)], 1.0, limits(), EngineSettings(), Pace(8, decoded_at=0.99)
    )
    assert chosen == Plan([(9, 5)], [9], 0.99 + EngineSettings().rest_s)


@many
@given(
    st.lists(candidate_of_any_kind, max_size=12),
    st.lists(st.integers(0, 20), max_size=4),
    st.floats(0, 5),
)
def test_speculative_replies_delay_no_first_sound(
    several: list[Candidate], spoken: list[int], now: float
) -> None:
    """While a listener waits for a first sound the plan is that without speculative replies."""
    others = [one._replace(key=key) for key, one in enumerate(several)]
    early = [
        Candidate(100 + key, "speech", 3 * (not rows), now, rows, now, speculative=True)
        for key, rows in enumerate(spoken)
    ]
    unheard = speech(50, 1, now)
    with_unheard = [*others, unheard]
    assert plan([*with_unheard, *early], now, limits(), FIRST) == plan(
        with_unheard, now, limits(), FIRST
    )
    assert not is_urgent(early, now + 100, FIRST)
    assert all(underrun_at(one) == math.inf for one in early)


def test_a_speculative_reply_runs_if_nothing_else_does() -> None:
    """It is prefilled and decoded like any other reply while no listener waits."""
    begins = Candidate(1, "speech", 5, 0.0, speculative=True)
    assert plan([begins], 0.0, limits(), FIRST) == Plan([(1, 5)], [1])
    speaks = Candidate(1, "speech", 0, 0.0, 3, 0.0, speculative=True)
    assert plan([speaks, speech(2, 12)], 0.0, limits(), FIRST).decode == [1, 2]
