"""The served engine under overload: calls are refused with a reason, replies end by a stated rule,
and nothing hangs."""

from contextlib import suppress
from dataclasses import replace

import pytest

from mosslive import Conversation, EngineFull, EngineSettings, LanguageModel, Sampling
from mosslive.cache import PageTable
from mosslive.engine import Busy
from mosslive.engine.errors import Reason
from mosslive.rows import ReplyKind, RowsError
from tests.engine.models import (
    PROMPTS,
    SETTINGS,
    Alone,
    alone_of,
    answer,
    fresh,
    prompt_rows,
    switching_lm,
)
from tests.engine.serving import ROOMY, Served, opened

SPEECH, TEXT = "text to speech", "speech to text"
GREEDY = replace(SETTINGS["greedy"], max_new=12)

switching = pytest.fixture(scope="module")(switching_lm)
alone = pytest.fixture(scope="module")(alone_of)


def refused(reason: Reason, message: str | None = None) -> "pytest.RaisesExc[EngineFull]":
    return pytest.raises(EngineFull, match=message, check=lambda error: error.reason == reason)


# Pages.


def test_an_append_beyond_the_pool_is_refused_and_the_conversation_stays_usable(
    switching: LanguageModel, alone: Alone
) -> None:
    """The call raises at once with the numbers, nothing is appended, and rows that fit continue
    exactly."""
    prompt = prompt_rows(switching, SPEECH)
    served = Served(switching, pages=len(prompt) // 4 + 4, page_size=4)
    conversation = opened(served, SPEECH)
    with refused("pages", r"40 rows: 10 pages needed, and 0 as headroom for 0 replies; 3 of"):
        conversation.append(prompt[:1] * 40)
    served.idle()
    with refused("pages"):
        conversation.append(prompt[:1] * 40)
    assert conversation.rows == prompt
    expected = alone(SPEECH, GREEDY)
    assert served.finish(conversation.reply(GREEDY)) == expected
    assert served.engine.stats().refusals == {"pages": 2}
    conversation.close()
    served.step()
    assert served.all_free()


def test_reserved_pages_count_before_rows_are_computed(switching: LanguageModel) -> None:
    """Of two appends that fit one by one but not together the second is refused, before any
    step."""
    served = Served(switching, pages=10, page_size=4)
    one, other = served.engine.open(), served.engine.open()
    one.append([(1, 64)] * 24)
    with refused("pages"):
        other.append([(2, 64)] * 17)
    other.append([(2, 64)] * 16)
    assert served.engine.stats().free_pages == 0
    served.idle()
    assert served.lm.pool.free == 0
    one.truncate(0)
    with refused("pages", "0 of 10 are free"):  # its pages are in use until the next step
        other.append([(3, 64)])
    served.step()
    other.append([(3, 64)])


def test_new_work_leaves_headroom_to_active_replies(switching: LanguageModel) -> None:
    """`headroom_rows` are kept for each active reply, in whole pages; without active replies the
    pool may be filled."""
    settings = replace(ROOMY, headroom_rows=9)  # 3 pages of 4 rows
    served = Served(switching, settings, pages=12, page_size=4)
    one, other = served.engine.open(), served.engine.open()
    one.append([(1, 64)] * 16)
    other.append([(2, 64)] * 16)
    reply = one.reply(GREEDY)
    with refused(
        "pages", "5 rows: 2 pages needed, and 3 as headroom for 1 replies; 4 of 12 are free"
    ):
        other.append([(2, 64)] * 5)
    other.append([(2, 64)] * 4)
    with refused("pages", "0 pages needed, and 6 as headroom for 2 replies"):
        other.reply(GREEDY)
    reply.cancel()
    other.append([(2, 64)] * 12)


def test_a_fork_is_refused_if_what_it_may_copy_has_no_page(switching: LanguageModel) -> None:
    """A fork is refused if the pages it may copy are not free; the original is not disturbed."""
    served = Served(switching, pages=4, page_size=4)
    conversation = served.engine.open()
    conversation.append([(1, 64)] * 14)
    with refused("pages", "a fork"):
        conversation.fork()
    served.idle()
    fork = conversation.fork()  # computed rows are shared
    with refused("pages"):
        fork.append([(1, 64)])
    served.idle()
    conversation.close()
    served.idle()
    assert served.lm.pool.free == 0
    fork.append([(1, 64)])  # the half-filled page is its own now


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_a_fork_during_a_step_counts_the_row_of_that_step(
    switching: LanguageModel, spare: int
) -> None:
    """The row of the running step goes into the partly filled page that both share, so it needs a
    page of its own."""
    prompt = prompt_rows(switching, "short")
    served = Served(switching, pages=-(-len(prompt) // 5) + spare, page_size=5)
    assert len(prompt) % 5 == 2
    conversation = opened(served, "short")
    served.idle()
    reply = conversation.reply(GREEDY)
    forks: list[Conversation] = []

    def during_step(_: object) -> None:
        with suppress(EngineFull):
            forks.append(conversation.fork())

    served.stepper.after = during_step
    served.step()
    assert (len(forks), len(reply.rows)) == (int(spare > 0), 1)
    del served.stepper.after
    served.idle()
    assert served.engine.stats().free_pages >= 0


@pytest.mark.parametrize("page_size", [1, 4])
def test_text_replies_end_before_speech_when_pages_run_out(
    nano_lm: LanguageModel, page_size: int
) -> None:
    """The newest text reply ends with "pages", then the older one; speech continues in the headroom
    they leave."""
    writes = Sampling(greedy=True, max_new=90)
    speaks = Sampling(greedy=True, max_new=20, min_new=99)
    prompts = [prompt_rows(nano_lm, name) for name in ("mixed to text", SPEECH, "short")]
    pages = sum(-(-len(prompt) // page_size) for prompt in prompts) + 3 * 16 // page_size
    served = Served(nano_lm, replace(ROOMY, headroom_rows=16), pages=pages, page_size=page_size)
    conversations = [served.engine.open() for _ in prompts]
    for conversation, prompt in zip(conversations, prompts, strict=True):
        conversation.append(prompt)
    replies = []
    for conversation, sampling in zip(conversations, (writes, speaks, writes), strict=True):
        replies.append(conversation.reply(sampling))
        served.clock.now += 0.001
    first, speech, last = (served.finish(reply) for reply in replies)
    assert speech == answer(fresh(nano_lm), prompts[1], speaks)
    assert (first.stop, last.stop) == ("pages", "pages")
    assert len(speech.rows) > len(first.rows) >= len(last.rows) > 4
    assert not any(row[0] == nano_lm.ids.sosp for row in first.rows + last.rows)  # they only write
    assert first.rows == answer(fresh(nano_lm), prompts[0], writes).rows[: len(first.rows)]
    for conversation in conversations:
        conversation.close()
    served.step()
    assert served.all_free()


def test_a_reply_ended_by_pages_continues_when_pages_are_free(
    switching: LanguageModel, alone: Alone
) -> None:
    """The rows of a reply ended by "pages" stay, and it continues after pages become free."""
    prompt = prompt_rows(switching, SPEECH)
    served = Served(switching, pages=len(prompt) // 4 + 8, page_size=4)
    other = served.engine.open()
    other.append([(3, 64)] * 24)
    conversation = opened(served, SPEECH)
    rows, stop = served.finish(conversation.reply(GREEDY))
    assert stop == "pages"
    assert rows == alone(SPEECH, GREEDY).rows[: len(rows)]
    assert served.engine.stats().free_pages == 0
    served.idle()
    with refused("pages"):
        conversation.append([(1, 64)] * 5)
    other.truncate(3)
    served.idle()
    conversation.truncate(len(prompt))
    assert served.finish(conversation.reply(GREEDY)) == alone(SPEECH, GREEDY)


# Deadlines.


def test_speech_is_refused_where_the_measured_step_would_be_too_long(
    switching: LanguageModel,
) -> None:
    """Admission estimates the step time from steps that ran; text is not refused, and an ended
    reply makes room."""
    settings = replace(ROOMY, deadline_margin=0.51, decode_guess_ms=(1.0, 9.0))
    served = Served(switching, settings, pages=400)

    def takes(tables: list[PageTable]) -> None:
        served.clock.now += 0.010 * len(tables)

    served.stepper.after = takes
    conversations = [opened(served, SPEECH) for _ in range(6)]
    served.idle()
    speaks = replace(GREEDY, min_new=99)
    replies = [conversation.reply(speaks) for conversation in conversations[:4]]
    served.step(4)
    assert served.engine.stats().decode_step_s == pytest.approx(0.040)
    with refused("deadlines", "5 speech replies at once would take 79 ms a step; allowed: 256"):
        conversations[4].reply(speaks)
    assert conversations[4].rows == prompt_rows(served.lm, SPEECH)
    opened(served, TEXT).reply(GREEDY)
    replies[0].cancel()
    conversations[4].reply(speaks)
    assert served.engine.stats().refusals == {"deadlines": 1}


def test_replies_started_before_the_first_step_are_counted(switching: LanguageModel) -> None:
    """The limit holds before the first step has run."""
    served = Served(switching, replace(ROOMY, max_speaking=2), pages=100)
    conversations = [opened(served, SPEECH) for _ in range(3)]
    replies = [conversation.reply(GREEDY) for conversation in conversations[:2]]
    with refused("deadlines", "allowed: 2 replies"):
        conversations[2].reply(GREEDY)
    assert served.engine.stats().speaking == len(replies)


def test_a_row_that_comes_too_late_is_counted_once(switching: LanguageModel) -> None:
    """With steps slower than speech every gap counts once, and nothing else counts."""
    served = Served(switching, ROOMY, pages=100)
    sampling = replace(SETTINGS["plain"], max_new=12, min_new=99)
    reply = opened(served, SPEECH).reply(sampling)
    served.step(4)
    assert served.engine.stats().missed_deadlines == 0
    served.clock.now += 10
    served.step(4)
    assert served.engine.stats().missed_deadlines == 1
    for _ in range(2):
        served.clock.now += 0.5
        served.step()
    assert served.engine.stats().missed_deadlines == 3
    assert len(reply.rows) == 10


# Other refusals.


def test_too_many_conversations(switching: LanguageModel) -> None:
    """Open conversations and forks count until they are closed."""
    served = Served(switching, replace(ROOMY, max_conversations=2))
    one, other = opened(served, SPEECH), served.engine.open()
    for call in (served.engine.open, one.fork):
        with refused("conversations", "2 conversations are open"):
            call()
    other.close()
    served.step()
    assert one.fork().rows == one.rows


def test_the_end_of_the_context_is_a_refusal(switching: LanguageModel) -> None:
    """Rows beyond the last position are refused, and a reply needs at least one position."""
    prompt = prompt_rows(switching, SPEECH)
    served = Served(switching, positions=len(prompt) + 2)
    conversation = opened(served, SPEECH)
    with refused("context", f"{len(prompt) + 3} rows; the context holds {len(prompt) + 2}"):
        conversation.append(prompt[:3])
    reply = conversation.reply(GREEDY)
    assert served.finish(reply).stop == "context"
    assert len(reply.rows) == 2
    with refused("context", "no position is left"):
        conversation.reply(GREEDY)
    conversation.truncate(len(prompt) + 1)
    assert served.finish(conversation.reply(GREEDY)).stop == "context"


def test_bad_rows_and_calls_are_refused(switching: LanguageModel) -> None:
    """A bad call raises at once and changes nothing."""
    served = Served(switching)
    conversation = served.engine.open()
    with pytest.raises(RowsError, match="the conversation is empty"):
        conversation.reply(GREEDY)
    for rows in ([], [(1, 2, 3)], [(-1, 0)], None, [(10**9, 0)]):
        with pytest.raises(RowsError):
            conversation.append(rows)
    conversation.append([(1, 64)] * 3)
    for length in (-1, 4, True, 1.5):
        with pytest.raises(RowsError, match=r"truncate to .* rows; allowed: 0\.\.3"):
            conversation.truncate(length)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sampling is 'greedy'"):
        conversation.reply("greedy")  # type: ignore[arg-type]
    reply = conversation.reply(GREEDY)
    for call in (lambda: conversation.append([(1, 64)]), lambda: conversation.reply(GREEDY)):
        with pytest.raises(Busy, match="a reply is active; let it end or interrupt it"):
            call()
    assert conversation.rows == [(1, 64)] * 3
    served.finish(reply)


def test_after_close_everything_is_refused(switching: LanguageModel) -> None:
    """A closed conversation refuses every call; its fork, or a fork's original, still works."""
    served = Served(switching)
    conversation = opened(served, SPEECH)
    fork = conversation.fork()
    conversation.close()  # before its fork was made
    conversation.close()
    for call in (
        lambda: conversation.append([(1, 64)]),
        lambda: conversation.reply(GREEDY),
        lambda: conversation.truncate(0),
        conversation.fork,
    ):
        with refused("closed", "the conversation is closed"):
            call()
    conversation.interrupt()
    served.idle()
    assert fork.rows == prompt_rows(served.lm, SPEECH)
    assert served.finish(fork.reply(GREEDY)).rows


def test_stats_add_up(switching: LanguageModel) -> None:
    """The statistics are right before, during and after a reply."""
    served = Served(switching, EngineSettings(headroom_rows=0), pages=100, page_size=4)
    conversations = [opened(served, name) for name in PROMPTS]
    stats = served.engine.stats()
    lengths = [len(prompt_rows(switching, name)) for name in PROMPTS]
    assert (stats.conversations, stats.replies, stats.queued_rows) == (5, 0, sum(lengths))
    assert stats.free_pages == 100 - sum(-(-length // 4) for length in lengths)
    kinds: list[ReplyKind] = [kind for _, kind in PROMPTS.values()]
    replies = [conversation.reply(GREEDY) for conversation in conversations]
    served.step()
    stats = served.engine.stats()
    assert (stats.replies, stats.queued_rows, stats.rows_made) == (5, 0, 5)
    assert stats.speaking >= kinds.count("speech") - 1  # one may have ended its speech
    for reply in replies:
        served.finish(reply)
    stats = served.engine.stats()
    assert stats.rows_made == sum(len(reply.rows) for reply in replies)
    assert (stats.replies, stats.speaking, stats.steps) == (0, 0, 12)
