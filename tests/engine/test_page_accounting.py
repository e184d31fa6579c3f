"""Free, taken and reserved pages add up at any time, also while a step runs."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import Conversation, EngineFull, LanguageModel, Sampling
from mosslive.cache import PagePool, PageTable
from mosslive.engine import Busy
from mosslive.engine.allowance import most_conversations, rows_each, rows_for
from mosslive.engine.settings import EngineSettings
from mosslive.errors import MossliveError
from mosslive.rows import Row
from tests.engine.models import switching_lm
from tests.engine.serving import Served

switching = pytest.fixture(scope="module")(switching_lm)
calls = st.tuples(
    st.sampled_from(["append", "append", "reply", "truncate", "rewrite", "fork", "close", "open"]),
    st.integers(0, 9),
    st.integers(0, 30),
    st.integers(1, 30),
)
SHORT = Sampling(greedy=True, max_new=7)


def rows_of(number: int, length: int) -> list[Row]:
    """Rows of two kinds only, so that conversations share pages."""
    return [(1 + number % 2, 64)] * length


class Owner:
    """Makes calls on conversations and checks that a refused call changes nothing."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.open: list[Conversation] = [served.engine.open()]
        self.replies: list[Any] = []  # kept, because dropping a reply ends it
        self.in_step: list[tuple[str, int, int, int]] = []

    def call(self, kind: str, which: int, length: int, more: int) -> None:
        one = self.open[which % len(self.open)]
        before = one.rows
        try:
            match kind:
                case "append":
                    one.append(rows_of(which, more))
                case "reply":
                    self.replies.append(one.reply(SHORT))
                case "truncate":
                    one.truncate(min(length, len(before)))
                case "rewrite":
                    one.rewrite(min(length, len(before)), rows_of(which, more))
                case "fork":
                    self.open.append(one.fork())
                case "open":
                    self.open.append(self.served.engine.open())
                case "close" if len(self.open) > 1:
                    self.open.remove(one)
                    one.close()
        except EngineFull:
            assert one.rows == before
        except (Busy, MossliveError):
            pass
        self.check()

    def during_step(self, _: list[PageTable]) -> None:
        """Runs the calls that were planned for the middle of a step."""
        self.check()
        for call in self.in_step:
            self.call(*call)
        self.in_step.clear()

    def check(self) -> None:
        stats = self.served.engine.stats()
        assert 0 <= stats.free_pages <= stats.pages

    def check_idle(self) -> None:
        """Checks between steps that the pool's own count agrees."""
        self.check()
        pool, state = self.served.lm.pool, self.served.engine._state
        held = {page for sequence in state.sequences.values() for page in sequence.table.pages}
        assert pool.free + len(held) == pool.total
        assert state.free_pages == pool.free - state.reserved
        assert state.reserved == sum(sequence.reserved for sequence in state.sequences.values())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    plan=st.lists(st.tuples(calls, st.booleans(), st.integers(0, 2)), min_size=5, max_size=40),
    page_size=st.integers(1, 5),
    rows=st.sampled_from([20, 60, 150]),
    chunk=st.sampled_from([4, 512]),
)
def test_free_pages_are_never_negative(
    switching: LanguageModel,
    plan: list[tuple[tuple[str, int, int, int], bool, int]],
    page_size: int,
    rows: int,
    chunk: int,
) -> None:
    """Any calls before, during and after steps keep the free pages between 0 and the pool size."""
    served = Served(switching, pages=-(-rows // page_size), page_size=page_size, chunk=chunk)
    owner = Owner(served)
    served.stepper.before = served.stepper.after = owner.during_step
    for call, in_step, steps in plan:
        if in_step:
            owner.in_step.append(call)
        else:
            owner.call(*call)
        for _ in range(steps):
            served.step()
            owner.check_idle()
    served.idle()
    owner.check_idle()
    for one in owner.open:
        one.close()
    served.idle()
    assert served.all_free()


def test_pages_of_a_running_step_are_counted_once(switching: LanguageModel) -> None:
    """While a long prefill runs, another conversation may use all pages that are free."""
    served = Served(switching, pages=10, page_size=4)
    one, other = served.engine.open(), served.engine.open()
    free: list[int] = []

    def during(_: list[PageTable]) -> None:
        free.append(served.engine.stats().free_pages)
        with suppress(Busy):
            other.append([(2, 64)] * 4)

    served.stepper.after = during
    one.append([(1, 64)] * 24)
    served.step()
    assert free == [4]
    assert len(other) == 4


def test_a_rewrite_that_does_not_grow_is_never_refused(switching: LanguageModel) -> None:
    """In a full pool a conversation can be truncated and extended to less than its old length."""
    served = Served(switching, pages=10, page_size=4)
    one = served.engine.open()
    one.append([(1, 64)] * 40)
    served.idle()
    assert served.engine.stats().free_pages == 0
    one.rewrite(6, [(2, 64)] * 30)
    assert one.rows == [(1, 64)] * 6 + [(2, 64)] * 30
    served.idle()
    assert served.engine.stats().free_pages == 1
    with pytest.raises(EngineFull):
        one.rewrite(6, [(2, 64)] * 60)
    assert one.rows == [(1, 64)] * 6 + [(2, 64)] * 30


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    conversations=st.integers(1, 60),
    rows=st.integers(1, 400),
    page_size=st.integers(1, 64),
    headroom=st.integers(0, 200),
)
def test_the_allowance_of_all_fits_into_the_pool(
    conversations: int, rows: int, page_size: int, headroom: int
) -> None:
    """A pool sized for n conversations of r rows gives each of n at least r rows, and holds n."""
    chosen = EngineSettings(headroom_rows=headroom)
    pool = PagePool(rows_for(conversations, rows, page_size, chosen) // page_size, page_size)
    assert rows <= rows_each(pool, conversations, chosen) < rows + page_size
    assert most_conversations(pool, rows, chosen) == conversations
