"""The division of the GPU's memory between conversations and replies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosslive.errors import MossliveError
from mosslive.server.memory_plan import (
    LEAST_POOL_S,
    VOICES_S,
    Needs,
    plan_memory,
    reply_seconds,
)

GIB = 1 << 30
ROW, SECOND = 163_840, 118_000_000  # of the published model, the second in half precision


def needs(**changes: object) -> Needs:
    """128 sessions of 2048 rows at full size, bf16, and 8 requests."""
    given: dict[str, object] = {
        "sessions": 128,
        "lm_weights": 18_200_000_000,
        "hearing": 5_000_000_000,
        "row_bytes": ROW,
        "rows": 136 * 2192,
        "least_rows": 2 * 400,
        "second_bytes": SECOND,
        "reply_s": reply_seconds(128, 40.0),
    }
    return Needs(**(given | changes))  # type: ignore[arg-type]


def test_wishes_are_met_where_there_is_room() -> None:
    """On a large GPU both pools have the size that was asked for, and no more."""
    plan = plan_memory(139 * GIB, needs())
    assert plan.rows == needs().rows
    assert plan.reply_s == needs().reply_s
    assert sum(plan.parts.values()) < 139 * GIB


def test_replies_take_what_the_rows_leave() -> None:
    """Under a cap the rows come first, as long as replies have a third."""
    plan = plan_memory(90 * 10**9, needs())
    left = 90 * 10**9 - sum(needs().fixed.values())
    assert plan.reply_s == pytest.approx(left / 3 / SECOND, rel=0.01)
    assert plan.rows == pytest.approx(left * 2 / 3 / ROW, rel=0.01)


def test_a_small_card_holds_a_few_conversations() -> None:
    """22 GiB with an FP8 trunk and the codec in halves: four conversations of 2048 rows and one
    request, and more than a whole longest reply."""
    small = needs(
        sessions=4,
        lm_weights=12_000_000_000,
        hearing=500_000_000,
        rows=5 * 2192,
        reply_s=reply_seconds(4, 40.0),
    )
    plan = plan_memory(20 * GIB, small)  # what the codec's weights and the context leave
    assert plan.rows == 5 * 2192
    assert plan.reply_s > 35


@pytest.mark.parametrize(
    ("sessions", "longest_s", "stored_s"), [(1, 40, 40), (4, 6, 8), (96, 40, 256)]
)
def test_seconds_follow_the_sessions(sessions: int, longest_s: float, stored_s: float) -> None:
    """Two thirds of the sessions hold half a typical reply, and one the longest."""
    assert reply_seconds(sessions, longest_s) == VOICES_S + stored_s


def test_an_error_names_every_part() -> None:
    """If the least does not fit, the error lists what takes how much and what to change."""
    with pytest.raises(MossliveError, match=r"weights 17\.0.*pages of replies 0\.9.*max-sessions"):
        plan_memory(20 * GIB, needs(hearing=10 * GIB))


def test_a_chosen_pool_is_kept_or_refused() -> None:
    """`--reply-pool-s` is never reduced; rows are."""
    chosen = needs(reply_s=300.0, chosen=True)
    plan = plan_memory(90 * 10**9, chosen)
    assert plan.reply_s == 300.0
    assert plan.rows < chosen.rows
    with pytest.raises(MossliveError, match="pages of replies"):
        plan_memory(50 * GIB, chosen)


def test_text_alone_needs_no_replies() -> None:
    """Without a voice all that is left is for rows."""
    plan = plan_memory(60 * 10**9, needs(second_bytes=0, hearing=0))
    assert plan.reply_s == 0
    assert plan.parts["pages of replies"] == 0


@given(
    available=st.integers(10 * GIB, 200 * GIB),
    sessions=st.integers(1, 512),
    rows=st.integers(800, 10**7),
    reply_s=st.floats(1, 2000),
    chosen=st.booleans(),
)
def test_a_plan_fits(
    available: int, sessions: int, rows: int, reply_s: float, chosen: bool
) -> None:
    """A plan never exceeds what is available or wanted, and has at least the least of each pool."""
    wanted = needs(sessions=sessions, rows=rows, reply_s=reply_s, chosen=chosen)
    try:
        plan = plan_memory(available, wanted)
    except MossliveError:
        return
    assert sum(plan.parts.values()) <= available + 1
    assert wanted.least_rows <= plan.rows <= rows
    assert min(LEAST_POOL_S, reply_s) - 1e-6 <= plan.reply_s <= reply_s
    assert not chosen or plan.reply_s == reply_s
