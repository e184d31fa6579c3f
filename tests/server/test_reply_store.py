"""Stored replies: found by their key until they expire, and bounded whatever clients do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.rows import Row
from mosslive.server import reply_store
from mosslive.server.api_errors import ApiError
from mosslive.server.reply_store import KEPT_S, ReplyStore
from mosslive.talk.dialogue import HistoryTurn


def said(rows: int, first: int = 0) -> HistoryTurn:
    grid: tuple[Row, ...] = tuple((first + n, 151_000 + n) for n in range(rows))
    return HistoryTurn("assistant", "speech", grid)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_until_it_expires() -> None:
    """A reply comes back row for row until the announced moment, and to its own key only; the
    error names the id."""
    clock = Clock()
    store = ReplyStore(clock)
    until = store.put("audio_1", "anna", said(30))
    assert until == 1000 + KEPT_S
    clock.now = until - 1
    assert store.get("audio_1", "anna", "x").rows == said(30).rows
    for name, owner in (("audio_1", "ben"), ("audio_2", "anna")):
        with pytest.raises(ApiError, match=f"x is '{name}'"):
            store.get(name, owner, "x")
    clock.now = until
    with pytest.raises(ApiError, match="x is 'audio_1'") as refused:
        store.get("audio_1", "anna", "x")
    assert (refused.value.status, refused.value.param) == (404, "x")


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40), st.integers(0, 2000))))
def test_bounds(puts: list[tuple[str, int, int]]) -> None:
    """Whatever is stored, each key and all keys together stay within their bounds, the latest reply
    of the key is there, and other keys lose replies only to the common bound."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reply_store, "_MOST_PER_KEY", 4)
        patch.setattr(reply_store, "_MOST_BYTES_PER_KEY", 1200)
        patch.setattr(reply_store, "_MOST_BYTES", 2500)
        store = ReplyStore(clock)
        for number, (owner, rows, later) in enumerate(puts):
            clock.now += later
            store.put(str(number), owner, said(rows, number))
            assert store.get(str(number), owner, "x").rows == said(rows, number).rows
            kept = store._keys.values()
            assert all(len(one.replies) <= 4 and one.size <= 1200 for one in kept)
            assert sum(one.size for one in kept) <= 2500
            for one in kept:
                assert one.size == sum(stored.size for stored in one.replies.values())
                assert all(stored.expires_at > clock.now for stored in one.replies.values())
