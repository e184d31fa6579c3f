"""The served engine: the rows of a reply equal those of the plain loop."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import Conversation, LanguageModel
from mosslive.cache import PageTable
from mosslive.rows import Row
from tests.engine.models import (
    PROMPTS,
    SETTINGS,
    Alone,
    alone_of,
    prompt_rows,
    switching_lm,
)
from tests.engine.serving import Oracle, Served, opened, oracle_of

SPEECH, TEXT = "mixed to speech", "mixed to text"
FILTERED = replace(SETTINGS["filtered"], max_new=12)
GREEDY = replace(SETTINGS["greedy"], max_new=12)

switching = pytest.fixture(scope="module")(switching_lm)
alone = pytest.fixture(scope="module")(alone_of)


oracle = pytest.fixture(scope="module")(oracle_of)


@pytest.fixture
def served(switching: LanguageModel) -> Served:
    return Served(switching, pages=400, page_size=4)


# Rows equal those of the plain loop.


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_reply_equals_the_plain_loop(served: Served, alone: Alone, setting: str) -> None:
    """Rows and stop reason equal those of the plain loop, greedy and sampled, speech and text."""
    for name in PROMPTS:
        conversation = opened(served, name)
        reply = conversation.reply(SETTINGS[setting])
        assert served.finish(reply) == alone(name, SETTINGS[setting])
        assert conversation.rows == prompt_rows(served.lm, name) + reply.rows
        conversation.close()
    served.step()
    assert served.all_free()


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    asks=st.lists(
        st.tuples(
            st.sampled_from(sorted(PROMPTS)),
            st.sampled_from(sorted(SETTINGS)),
            st.integers(1, 32),
            st.integers(0, 9),
        ),
        min_size=2,
        max_size=7,
    ),
    chunk=st.sampled_from([3, 16, 512]),
    page_size=st.integers(1, 17),
)
def test_random_arrival_changes_no_row(
    switching: LanguageModel,
    alone: Alone,
    asks: list[tuple[str, str, int, int]],
    chunk: int,
    page_size: int,
) -> None:
    """Replies that start and end while others run, with prefill split anywhere, have exact rows."""
    served = Served(switching, pages=800, page_size=page_size, chunk=chunk)
    begun = []
    for name, setting, max_new, steps in asks:
        sampling = replace(SETTINGS[setting], max_new=max_new)
        conversation = opened(served, name)
        begun.append((conversation, conversation.reply(sampling), alone(name, sampling)))
        served.step(steps)
    for conversation, reply, expected in begun:
        assert served.finish(reply) == expected
        conversation.close()
    served.step()
    assert served.all_free()


@pytest.mark.parametrize("piece", [1, 3, 10])
def test_listening_in_pieces_while_another_conversation_speaks(
    served: Served, alone: Alone, piece: int
) -> None:
    """Rows appended a few at a time, while another conversation speaks, give the same reply."""
    speaker = opened(served, "text to speech").reply(SETTINGS["filtered"])
    conversation = served.engine.open()
    rows = prompt_rows(served.lm, SPEECH)
    for first in range(0, len(rows), piece):
        conversation.append(rows[first : first + piece])
        served.clock.now += 0.08
        served.step()
    assert served.finish(conversation.reply(FILTERED)) == alone(SPEECH, FILTERED)
    assert served.finish(speaker) == alone("text to speech", SETTINGS["filtered"])


def test_turn_after_turn_is_one_history(served: Served, oracle: Oracle) -> None:
    """A conversation continues after a reply, and the next reply is based on all rows before it."""
    conversation = opened(served, "short")
    for turn in range(4):
        before = conversation.rows
        prefix = prompt_rows(served.lm, SPEECH)[turn : turn + 9]
        reply = conversation.reply(replace(FILTERED, seed=turn), prefix)
        assert served.finish(reply) == oracle(before + prefix, replace(FILTERED, seed=turn))


def test_what_was_computed_is_not_computed_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are prefilled while listening: when the reply begins only new rows run, and forks share
    pages."""
    rows: list[int] = []
    trunk = served.lm.runner.trunk

    def counted(jobs: list[tuple[PageTable, int]]) -> Any:
        rows.append(sum(len(table) - first for table, first in jobs))
        return trunk(jobs)

    monkeypatch.setattr(served.lm.runner, "trunk", counted)
    conversation = opened(served, SPEECH)
    served.idle()
    heard = len(conversation)
    assert sum(rows) == heard
    served.finish(conversation.reply(FILTERED))
    assert sum(rows) == heard + FILTERED.max_new - 1
    fork = conversation.fork()
    conversation.truncate(heard)
    served.finish(conversation.reply(FILTERED))
    served.finish(fork.reply(FILTERED))
    made = (FILTERED.max_new - 1) + FILTERED.max_new
    assert sum(rows) == heard + FILTERED.max_new - 1 + made
    again = served.engine.open()  # shares pages by content
    again.append(prompt_rows(served.lm, SPEECH))
    served.idle()
    assert sum(rows) == heard + FILTERED.max_new - 1 + made + heard - (heard - 1) // 4 * 4


# Fork, truncate, cancel: at every point.


@pytest.mark.parametrize("rows", range(FILTERED.max_new + 1))
def test_a_fork_at_every_point(served: Served, oracle: Oracle, rows: int) -> None:
    """A fork during a reply does not disturb it and continues like a fresh prompt."""
    conversation = opened(served, SPEECH)
    reply = conversation.reply(FILTERED)
    served.step(rows)
    assert len(reply.rows) == rows
    fork = conversation.fork()
    history = fork.rows
    assert history == conversation.rows
    other = fork.reply(GREEDY)
    assert served.finish(other) == oracle(history, GREEDY)
    assert served.finish(reply) == oracle(prompt_rows(served.lm, SPEECH), FILTERED)
    for one in (conversation, fork):
        one.close()
    served.step()
    assert served.all_free()


@pytest.mark.parametrize("made", range(FILTERED.max_new + 1))
@pytest.mark.parametrize("heard", [-2, 0, 1, 5])
def test_a_reply_truncated_at_every_point(
    served: Served, oracle: Oracle, made: int, heard: int
) -> None:
    """After a truncation to what was heard, or into the prompt, the next reply is the reply to
    exactly those rows."""
    conversation = opened(served, SPEECH)
    reply = conversation.reply(FILTERED)
    served.step(made)
    length = len(conversation) - made + min(heard, made)
    history = conversation.rows[:length]
    conversation.truncate(length)
    assert reply.stop == ("interrupted" if made < FILTERED.max_new else "length")
    more = prompt_rows(served.lm, "short")
    assert served.finish(conversation.reply(GREEDY, more)) == oracle(history + more, GREEDY)


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("how", ["interrupt", "cancel", "drop reply", "close", "drop all"])
def test_cancelled_at_every_point(served: Served, alone: Alone, how: str, steps: int) -> None:
    """After a cancel no row is added, the rows before stay, other replies are unchanged and all
    pages are freed."""
    neighbour = opened(served, TEXT).reply(FILTERED)
    conversation = opened(served, SPEECH)
    reply = conversation.reply(FILTERED)
    served.step(steps)
    before = conversation.rows
    rows = reply.rows
    assert rows == alone(SPEECH, FILTERED).rows[:steps]
    if how == "interrupt":
        conversation.interrupt()
    elif how == "cancel":
        reply.cancel()
    elif how == "close":
        conversation.close()
    del reply
    if how == "drop all":
        del conversation
    served.step(3)
    assert served.engine.stats().replies == 1
    if how in ("interrupt", "cancel", "drop reply"):
        assert conversation.rows == before
        more = prompt_rows(served.lm, "short")
        conversation.reply(GREEDY, more).cancel()  # it is usable
        assert conversation.rows == before + more
        conversation.close()
    assert served.finish(neighbour) == alone(TEXT, FILTERED)
    del neighbour
    served.step()
    assert served.all_free()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("what", ["truncate", "close", "interrupt", "fork", "drop reply"])
def test_callers_need_not_wait_for_a_step_to_end(
    served: Served, oracle: Oracle, what: str, step: int, when: str
) -> None:
    """A call during a step takes effect at once, and the row of that step is dropped."""
    conversation = opened(served, SPEECH)
    replies = [conversation.reply(FILTERED)]
    served.step(step)
    forks: list[Conversation] = []
    done: list[list[Row]] = []

    def during_step(_: object) -> None:
        if done:
            return
        if what == "truncate":
            conversation.truncate(20)
            conversation.append(prompt_rows(served.lm, "short"))
        elif what == "fork":
            forks.append(conversation.fork())
            conversation.truncate(30)
        elif what == "drop reply":
            replies.clear()
        else:
            getattr(conversation, what)()
        done.append(conversation.rows)

    setattr(served.stepper, when, during_step)
    served.step()
    assert done
    assert replies == [] or replies[0].stop == "interrupted"
    if what == "close":
        served.step()
    else:
        assert conversation.rows == done[0]
        assert served.finish(conversation.reply(GREEDY)) == oracle(done[0], GREEDY)
    for fork in forks:
        history = fork.rows
        assert len(history) == len(prompt_rows(served.lm, SPEECH)) + step
        assert served.finish(fork.reply(GREEDY)) == oracle(history, GREEDY)
        fork.close()
    conversation.close()
    served.step()
    assert served.all_free()
