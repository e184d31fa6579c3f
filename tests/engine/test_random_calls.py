"""Random sequences of calls on conversations, between the steps of a served engine and within
them."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import Conversation, EngineFull, LanguageModel, Sampling
from mosslive.engine import Busy, ReplyStream
from mosslive.rows import Row, RowsError
from tests.engine.models import SETTINGS, Answer, prompt_rows, switching_lm
from tests.engine.serving import Oracle, Served, opened, oracle_of

switching = pytest.fixture(scope="module")(switching_lm)
oracle = pytest.fixture(scope="module")(oracle_of)


class RandomCalls:
    """Conversations with random calls at any time, also within a step, and a model of what each
    must contain."""

    def __init__(self, served: Served, oracle: Oracle) -> None:
        self.served, self.oracle = served, oracle
        self.conversations: list[Conversation] = []
        self.rows: list[list[Row]] = []  # of each, without those of the active reply
        self.replies: list[tuple[ReplyStream, Answer] | None] = []  # and its expected answer
        self.later: list[tuple[str, int, Any]] = []
        self.wrong: list[Exception] = []
        served.stepper.before = served.stepper.after = lambda _: self.during_step()
        for _ in range(2):
            self.add(opened(served, "short"), prompt_rows(served.lm, "short"))

    def add(self, conversation: Conversation, rows: list[Row]) -> None:
        self.conversations.append(conversation)
        self.rows.append(rows)
        self.replies.append(None)

    def during_step(self) -> None:
        try:
            if self.later:
                self.do(*self.later.pop(0))
        except Exception as error:  # the engine would take it for a failure of the stepper
            self.wrong.append(error)

    def do(self, kind: str, number: int, value: Any) -> None:
        index = number % len(self.conversations)
        with suppress(Busy, EngineFull, RowsError):
            getattr(self, kind)(index, value)
        self.check(index)

    def check(self, index: int) -> None:
        """The rows are exactly the expected ones."""
        made = []
        if known := self.replies[index]:
            reply, expected = known
            made = reply.rows
            assert made == expected.rows[: len(made)]
            if reply.stop not in (None, "interrupted", "pages"):
                assert (made, reply.stop) == expected
        assert self.conversations[index].rows == self.rows[index] + made
        if known and known[0].stop:
            self.keep(index)

    def keep(self, index: int) -> None:
        if known := self.replies[index]:
            self.rows[index] += known[0].rows
            self.replies[index] = None

    def append(self, index: int, rows: list[Row]) -> None:
        self.conversations[index].append(rows)
        self.keep(index)
        self.rows[index] += rows

    def reply(self, index: int, sampling: Sampling) -> None:
        reply = self.conversations[index].reply(sampling)
        self.keep(index)
        self.replies[index] = reply, self.oracle(self.rows[index], sampling)

    def interrupt(self, index: int, _: object) -> None:
        self.conversations[index].interrupt()

    def drop(self, index: int, _: object) -> None:
        self.keep(index)

    def truncate(self, index: int, share: float) -> None:
        length = int(share * len(self.conversations[index]))
        self.conversations[index].truncate(length)
        self.keep(index)
        del self.rows[index][length:]

    def fork(self, index: int, _: object) -> None:
        self.add(self.conversations[index].fork(), self.conversations[index].rows)

    def reopen(self, index: int, _: object) -> None:
        self.conversations[index].close()
        self.conversations[index] = self.served.engine.open()
        self.rows[index], self.replies[index] = [], None


some_rows = st.lists(
    st.sampled_from([(1, 64), (2, 64), (403, 64), (424, 5), (424, 64), (424, 500)]),
    min_size=1,
    max_size=9,
)
short = st.builds(
    lambda name, rows: replace(SETTINGS[name], max_new=rows),
    st.sampled_from(["greedy", "filtered", "hot, pad"]),
    st.integers(1, 9),
)
kinds: dict[str, st.SearchStrategy[Any]] = {
    "append": some_rows,
    "reply": short,
    "interrupt": st.none(),
    "drop": st.none(),
    "truncate": st.floats(0, 1),
    "fork": st.none(),
    "reopen": st.none(),
}
moves = st.sampled_from(["append", "reply", "reply", "reply", *kinds]).flatmap(
    lambda kind: st.tuples(st.just(kind), st.integers(0, 9), kinds[kind])
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    plan=st.lists(
        st.tuples(moves, st.sampled_from([0, 1, 3, 7]), st.booleans()), min_size=10, max_size=30
    ),
    page_size=st.integers(1, 5),
    rows=st.sampled_from([30, 100, 900]),
    chunk=st.sampled_from([4, 512]),
)
def test_any_order_of_calls_is_exact_and_frees_all_pages(
    switching: LanguageModel,
    oracle: Oracle,
    plan: list[tuple[tuple[str, int, Any], int, bool]],
    page_size: int,
    rows: int,
    chunk: int,
) -> None:
    """Any order of calls, between steps and within them, on pools that run out, gives exact rows
    and frees every page."""
    served = Served(switching, pages=-(-rows // page_size), page_size=page_size, chunk=chunk)
    calls = RandomCalls(served, oracle)
    for move, steps, in_step in plan:
        if in_step:
            calls.later.append(move)
        else:
            calls.do(*move)
        for _ in range(steps):
            served.step()
            assert 0 <= served.engine.stats().free_pages <= served.lm.pool.free
    served.idle()
    assert calls.wrong == []
    for index, conversation in enumerate(calls.conversations):
        calls.check(index)
        conversation.close()
    served.step()
    assert served.all_free()
