"""Failures in the served engine: only the request at fault fails, and no call waits for ever."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from mosslive import LanguageModel, MossliveError
from mosslive.cache import PageTable
from mosslive.engine import EngineBroken, StepFailed
from mosslive.kernels import NonFiniteLogits
from tests.engine.models import SETTINGS, Alone, alone_of, break_at, prompt_rows, switching_lm
from tests.engine.serving import Served, opened, read, until

SPEECH, TEXT = "mixed to speech", "mixed to text"
FILTERED = replace(SETTINGS["filtered"], max_new=10)

switching = pytest.fixture(scope="module")(switching_lm)
alone = pytest.fixture(scope="module")(alone_of)


@pytest.fixture
def served(switching: LanguageModel) -> Served:
    return Served(switching, pages=300, page_size=4)


def breaks(served: Served, rows: int) -> Callable[[list[PageTable]], None]:
    """A stepper hook that fails whenever a table with that many rows is in the batch."""

    def check(tables: list[PageTable]) -> None:
        if any(len(table) == rows for table in tables):
            raise RuntimeError("a faulty table")

    return check


@pytest.mark.parametrize("made", range(5))
def test_a_request_that_fails_affects_no_other(served: Served, alone: Alone, made: int) -> None:
    """A failure at any row repeats the batch without that request, whose rows so far stay."""
    names = [SPEECH, TEXT, "text to speech"]
    conversations = [opened(served, name) for name in names]
    served.idle()
    replies = [conversation.reply(FILTERED) for conversation in conversations]
    failing_rows = len(conversations[0]) + made
    assert not any(len(other) <= failing_rows <= len(other) + 10 for other in conversations[1:])
    served.stepper.before = breaks(served, failing_rows)
    served.idle()
    with pytest.raises(StepFailed, match="the step failed: RuntimeError: a faulty table") as caught:
        asyncio.run(read(replies[0]))
    assert isinstance(caught.value.__cause__, RuntimeError)
    # A table lacks the newest row until the next step.
    assert replies[0].rows == alone(SPEECH, FILTERED).rows[: made + (made > 0)]
    assert conversations[0].rows == prompt_rows(served.lm, SPEECH) + replies[0].rows
    for name, reply in zip(names[1:], replies[1:], strict=True):
        assert (reply.rows, reply.stop) == alone(name, FILTERED)
    for conversation in conversations:
        conversation.close()
    served.step()
    assert served.all_free()


def test_a_step_that_fails_after_its_rows_were_made_skips_no_row(
    served: Served, alone: Alone
) -> None:
    """If a stepper fails after it made rows, against its contract, the replies of that step end
    with exact rows so far."""
    conversations = [opened(served, name) for name in (SPEECH, TEXT)]
    replies = [conversation.reply(FILTERED) for conversation in conversations]
    served.step(3)
    served.stepper.after = breaks(served, len(prompt_rows(served.lm, SPEECH)) + 3)
    served.idle()
    for name, reply in zip((SPEECH, TEXT), replies, strict=True):
        with pytest.raises(StepFailed, match="after it had made rows"):
            asyncio.run(read(reply))
        assert reply.rows == alone(name, FILTERED).rows[:3]


@pytest.mark.parametrize("call", [1, 2, 5])
@pytest.mark.parametrize("method", ["trunk", "tail", "logits"])
def test_a_pass_that_breaks_half_way_is_made_again(
    served: Served, alone: Alone, monkeypatch: pytest.MonkeyPatch, method: str, call: int
) -> None:
    """A failure that does not repeat costs no row, and partly written rows are not used."""
    conversations = [opened(served, name) for name in (SPEECH, TEXT)]
    replies = [conversation.reply(FILTERED) for conversation in conversations]
    break_at(monkeypatch, served.lm.runner.decoder, method, call)
    for name, reply in zip((SPEECH, TEXT), replies, strict=True):
        assert served.finish(reply) == alone(name, FILTERED)


def test_logits_that_are_not_finite_end_one_reply(
    served: Served, alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader of that reply gets the error after its rows; the other replies get their rows."""
    conversations = [opened(served, name) for name in (SPEECH, TEXT)]
    replies = [conversation.reply(FILTERED) for conversation in conversations]
    served.step(3)
    runner = served.lm.runner
    works = runner.tail_logits
    table = conversations[0]._sequence.table

    def poisoned(tail: Any, tables: list[PageTable], *rest: Any) -> torch.Tensor:
        logits = works(tail, tables, *rest).clone()
        if table in tables:
            logits[tables.index(table)] = float("nan")
        return logits

    monkeypatch.setattr(runner, "tail_logits", poisoned)
    served.idle()
    with pytest.raises(NonFiniteLogits):
        asyncio.run(read(replies[0]))
    assert replies[0].rows == alone(SPEECH, FILTERED).rows[:3]
    assert (replies[1].rows, replies[1].stop) == alone(TEXT, FILTERED)


def test_rows_that_cannot_be_computed_are_removed_and_reported(
    served: Served, alone: Alone
) -> None:
    """Every call raises until `truncate`; then the conversation continues as if the rows had never
    come."""
    conversation, other = opened(served, "short"), opened(served, TEXT)
    served.idle()
    kept = len(conversation)
    served.stepper.before = breaks(served, kept)
    conversation.append([(1, 64)] * 5)
    other.append([(1, 64)])
    served.idle()
    assert len(conversation) == kept
    assert other.rows[-1] == (1, 64)
    for call in (
        lambda: conversation.append([(1, 64)]),
        lambda: conversation.reply(FILTERED),
        conversation.fork,
        lambda: asyncio.run(conversation.settled()),
    ):
        with pytest.raises(MossliveError, match=f"rows after the first {kept} were lost"):
            call()
    conversation.truncate(kept)
    del served.stepper.before
    assert served.finish(conversation.reply(FILTERED)) == alone("short", FILTERED)


def test_a_reply_whose_prompt_cannot_be_computed_raises(served: Served) -> None:
    """The reader gets the error, and the conversation is empty again and usable."""
    conversation = opened(served, SPEECH)
    reply = conversation.reply(FILTERED)
    served.stepper.before = breaks(served, 0)
    served.idle()
    with pytest.raises(StepFailed, match="a faulty table"):
        asyncio.run(read(reply))
    assert conversation.rows == []
    del served.stepper.before
    conversation.append([(1, 64)])
    served.idle()
    conversation.close()
    served.step()
    assert served.all_free()


@pytest.mark.parametrize("fault", ["the device", "the engine"])
def test_a_permanent_failure_reaches_every_caller(
    served: Served, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Readers, callers of `settled` and later callers all get the same error."""

    def fails(*_: object) -> None:
        raise EngineBroken("the GPU fell off the bus") if fault == "the device" else KeyError("x")

    async def main() -> None:
        speaking, listening = opened(served, SPEECH), opened(served, TEXT)
        reader = asyncio.create_task(read(speaking.reply(FILTERED)))
        await until(lambda: len(speaking) > len(prompt_rows(served.lm, SPEECH)), served.step)
        listening.append([(1, 64)])
        settled = asyncio.create_task(listening.settled())
        await asyncio.sleep(0)
        if fault == "the device":
            served.stepper.before = fails
        else:
            monkeypatch.setattr("mosslive.engine.engine_loop.plan", fails)
        served.engine.loop.run()
        for task in (reader, settled):
            with pytest.raises(EngineBroken, match=r"the engine failed.*(bus|KeyError)"):
                await task
        for call in (served.engine.open, listening.fork, lambda: listening.append([(1, 64)])):
            with pytest.raises(EngineBroken, match="must be loaded again"):
                call()

    asyncio.run(main())
