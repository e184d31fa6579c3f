"""The served engine from event loops: waiting, cancelling, slow readers, and its thread."""

import asyncio
import gc
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mosslive import Conversation, Engine, EngineFull, EngineSettings, LanguageModel
from mosslive.engine import Busy
from mosslive.rows import Row
from tests.engine.models import (
    SETTINGS,
    Alone,
    all_free,
    alone_of,
    fresh,
    prompt_rows,
    switching_lm,
)
from tests.engine.serving import ROOMY, Served, Watched, opened, read, until

SPEECH, TEXT = "mixed to speech", "mixed to text"
FILTERED = replace(SETTINGS["filtered"], max_new=12)
DOCS = Path(__file__).parents[2] / "docs" / "engine.md"

switching = pytest.fixture(scope="module")(switching_lm)
alone = pytest.fixture(scope="module")(alone_of)


@pytest.fixture
def served(switching: LanguageModel) -> Served:
    return Served(switching, pages=300, page_size=4)


def opened_with(engine: Engine, rows: list[Row]) -> Conversation:
    conversation = engine.open()
    conversation.append(rows)
    return conversation


# Ending a reply early.


def test_leaving_the_loop_ends_the_reply(served: Served, alone: Alone) -> None:
    """A break ends the reply if nothing else holds it: no row is added afterwards."""

    async def main() -> None:
        conversation = opened(served, SPEECH)
        ticking = asyncio.create_task(until(lambda: False, served.step))
        rows = []
        async for row in conversation.reply(FILTERED):
            rows.append(row)
            if len(rows) == 3:
                break
        at_break = len(conversation)
        conversation.append(prompt_rows(served.lm, "short"))  # so it is not busy
        assert rows == alone(SPEECH, FILTERED).rows[:3]
        assert len(conversation) == at_break + len(prompt_rows(served.lm, "short"))
        await conversation.settled()
        assert len(conversation) == at_break + len(prompt_rows(served.lm, "short"))
        ticking.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_cancelling_the_reader_ends_the_reply(served: Served, rows: int) -> None:
    """The reply ends within one step, wherever the task waits, and the conversation stays
    usable."""

    async def main() -> None:
        conversation = opened(served, SPEECH)
        before = len(conversation)
        reply = conversation.reply(FILTERED)
        reader = asyncio.create_task(read(reply))
        await until(lambda: len(reply.rows) == rows, served.step)
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert reply.stop == "interrupted"
        served.idle()
        assert len(conversation) == before + rows
        assert await read(reply) == []
        await reply.aclose()

    asyncio.run(main())


def test_an_interrupted_reader_stops_at_once(served: Served) -> None:
    """Rows made but not read are no longer returned, and stay in the conversation."""

    async def main() -> None:
        conversation = opened(served, SPEECH)
        reply = conversation.reply(FILTERED)
        reader = asyncio.create_task(read(reply))
        await asyncio.sleep(0)  # it waits
        conversation.interrupt()
        assert await reader == []
        reply = conversation.reply(FILTERED)
        served.step(5)
        assert await anext(reply) == reply.rows[0]
        conversation.interrupt()
        assert await read(reply) == []
        assert conversation.rows[-5:] == reply.rows

    asyncio.run(main())


def test_dropping_all_references_frees_the_pages(served: Served) -> None:
    """Dropping all references frees the pages without a call of close, also in a reference
    cycle."""
    conversation = opened(served, SPEECH)
    cycle: list[Any] = [conversation.reply(FILTERED)]
    cycle.append(cycle)
    served.step(3)
    del conversation, cycle
    gc.collect()
    served.step()
    assert served.all_free()


def test_a_closed_event_loop_affects_no_other_reader(served: Served, alone: Alone) -> None:
    """A reader on a closed event loop is never woken; a reader on another loop is."""
    reply = opened(served, TEXT).reply(FILTERED)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(read(reply))
    loop.run_until_complete(asyncio.sleep(0))
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    other = opened(served, SPEECH).reply(FILTERED)

    async def main() -> list[Row]:
        reader = asyncio.create_task(read(other))
        await until(reader.done, served.step)
        return await reader

    assert asyncio.run(main()) == alone(SPEECH, FILTERED).rows


# Slow readers and waiting.


@pytest.mark.parametrize("ahead", [1, 4, 7])
def test_a_reply_pauses_for_a_slow_reader(
    switching: LanguageModel, alone: Alone, ahead: int
) -> None:
    """The reply pauses at `ahead_rows` unread rows, continues at half of them, and drops
    nothing."""
    served = Served(switching, replace(ROOMY, ahead_rows=ahead), pages=300, page_size=4)

    async def main() -> None:
        reply = opened(served, SPEECH).reply(FILTERED)
        served.idle()
        assert len(reply.rows) == ahead
        rows = []
        for _ in range(ahead - ahead // 2 - 1):
            rows.append(await anext(reply))
        served.idle()
        assert len(reply.rows) == ahead
        rows.append(await anext(reply))
        served.idle()
        assert len(reply.rows) == min(ahead + len(rows), FILTERED.max_new)
        reader = asyncio.create_task(read(reply))
        await until(reader.done, served.step)
        assert rows + await reader == alone(SPEECH, FILTERED).rows
        assert served.engine.stats().missed_deadlines == 0

    asyncio.run(main())


def test_a_pause_is_not_a_missed_deadline(switching: LanguageModel) -> None:
    """After a pause the unread rows are the lead, however long the pause was."""
    served = Served(switching, replace(ROOMY, ahead_rows=6), pages=300)
    speaks = replace(FILTERED, min_new=99)

    async def main() -> None:
        reply = opened(served, SPEECH).reply(speaks)
        served.idle()
        served.clock.now += 60
        for _ in range(3):
            await anext(reply)
        served.clock.now += 0.2
        served.idle()
        assert len(reply.rows) == 9
        assert served.engine.stats().missed_deadlines == 0

    asyncio.run(main())


def test_settled_waits_for_appended_rows_and_dropped_pages(served: Served) -> None:
    """`settled` waits until appended rows are computed and dropped pages are free, also for the
    last row of a reply, and returns after close."""

    async def main() -> None:
        conversation = served.engine.open()
        await conversation.settled()
        conversation.append(prompt_rows(served.lm, SPEECH))
        waiting = asyncio.create_task(conversation.settled())
        await asyncio.sleep(0)
        assert not waiting.done()
        await until(waiting.done, served.step)
        assert served.engine.stats().queued_rows == 0
        served.finish(conversation.reply(FILTERED))
        assert len(conversation) == len(conversation._sequence.table) + 1
        waiting = asyncio.create_task(conversation.settled())
        await until(waiting.done, served.step)
        assert len(conversation) == len(conversation._sequence.table)
        conversation.close()
        waiting = asyncio.create_task(conversation.settled())
        await asyncio.sleep(0)
        assert not waiting.done()
        await until(waiting.done, served.step)
        assert served.all_free()

    asyncio.run(main())


def test_settled_does_not_wait_for_a_paused_reply(switching: LanguageModel) -> None:
    """`settled` returns during a paused reply, because all appended rows are computed once it has
    begun."""
    served = Served(switching, replace(ROOMY, ahead_rows=2))

    async def main() -> None:
        conversation = opened(served, SPEECH)
        reply = conversation.reply(FILTERED)
        waiting = asyncio.create_task(conversation.settled())
        await until(waiting.done, served.step)
        served.idle()
        await conversation.settled()
        assert len(reply.rows) == 2

    asyncio.run(main())


def test_one_reader_at_a_time(served: Served) -> None:
    """A second reader gets an error, and the first continues."""

    async def main() -> None:
        reply = opened(served, SPEECH).reply(FILTERED)
        reader = asyncio.create_task(read(reply))
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="one reader at a time"):
            await anext(reply)
        await until(reader.done, served.step)
        assert await reader == reply.rows

    asyncio.run(main())


# With its thread.


def test_many_loops_in_many_threads(switching: LanguageModel, alone: Alone) -> None:
    """Every reader gets the rows of the plain loop, and afterwards every page is free."""
    lm = fresh(switching, pages=600, page_size=4)
    engine = Engine(Watched(lm.runner), lm.tokenizer, ROOMY)
    wrong: list[object] = []

    async def client(number: int) -> None:
        name, sampling = (SPEECH, TEXT)[number % 2], replace(FILTERED, seed=number % 3)
        rows = prompt_rows(lm, name)
        conversation = engine.open()
        for first in range(0, len(rows), 7 + number):
            conversation.append(rows[first : first + 7 + number])
            await asyncio.sleep(0)
        if number % 3 == 0:
            await conversation.settled()
        reply = conversation.reply(sampling)
        fork = conversation.fork()
        if (await read(reply), reply.stop) != alone(name, sampling):
            wrong.append(name)
        fork.truncate(len(rows))
        async for row in fork.reply(sampling):
            if row != alone(name, sampling).rows[0]:
                wrong.append(row)
            break
        fork.close()
        conversation.close()
        await conversation.settled()

    async def clients(first: int) -> None:
        await asyncio.gather(*(client(first + number) for number in range(4)))

    def loop(first: int) -> None:
        try:
            asyncio.run(clients(first))
        except BaseException as error:
            wrong.append(error)

    for number in range(3):  # computed once, before any thread needs them
        alone(SPEECH, replace(FILTERED, seed=number))
        alone(TEXT, replace(FILTERED, seed=number))
    threads = [threading.Thread(target=loop, args=(4 * number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert wrong == []
    asyncio.run(engine.close())
    assert all_free(lm)
    assert threading.active_count() == 1 or not any(
        thread.name == "mosslive-engine" for thread in threading.enumerate()
    )


def test_the_event_loop_never_waits_for_the_model(switching: LanguageModel, alone: Alone) -> None:
    """While a step blocks, every call returns and other tasks run."""
    lm = fresh(switching, pages=300, page_size=4)
    stepper = Watched(lm.runner)
    running, resume = threading.Event(), threading.Event()

    def blocks(_: object) -> None:
        running.set()
        assert resume.wait(timeout=60)

    stepper.before = blocks

    async def main() -> None:
        async with Engine(stepper, lm.tokenizer, ROOMY) as engine:
            first = opened_with(engine, prompt_rows(lm, SPEECH))
            await asyncio.to_thread(running.wait)
            second = opened_with(engine, prompt_rows(lm, TEXT))
            second.truncate(4)
            fork = first.fork()
            reply = first.reply(FILTERED)
            left = fork.reply(FILTERED)
            left.cancel()
            fork.close()
            assert engine.stats().replies == 1
            assert (len(first), len(second)) == (len(prompt_rows(lm, SPEECH)), 4)
            resume.set()
            assert await read(reply) == alone(SPEECH, FILTERED).rows
            assert (left.rows, left.stop) == ([], "interrupted")

    asyncio.run(main())
    assert all_free(lm)


def test_closing_the_engine_ends_every_wait(switching: LanguageModel) -> None:
    """After close readers get an error, pages are free, the thread has ended and later calls are
    refused."""
    lm = fresh(switching, pages=300, page_size=4)

    async def main() -> None:
        engine = Engine(
            Watched(lm.runner), lm.tokenizer, EngineSettings(headroom_rows=0, ahead_rows=3)
        )
        conversations = [opened_with(engine, prompt_rows(lm, name)) for name in (SPEECH, TEXT)]
        replies = [c.reply(replace(FILTERED, max_new=500)) for c in conversations]
        first = await anext(replies[0])
        await engine.close()
        with pytest.raises(EngineFull, match="the engine was closed") as refusal:
            await read(replies[0])
        assert refusal.value.reason == "closed"
        assert replies[0].rows[0] == first
        calls: list[Callable[[], object]] = [engine.open, conversations[0].fork]
        for call in calls:
            with pytest.raises(EngineFull, match="the engine is closed"):
                call()
        await conversations[0].settled()
        await engine.close()

    asyncio.run(main())
    assert all_free(lm)
    assert not any(thread.name == "mosslive-engine" for thread in threading.enumerate())


def test_the_example_of_the_documentation_runs(nano_folder: Path) -> None:
    """The example of docs/engine.md runs as printed."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    stop, stats = asyncio.run(names["talk"](nano_folder))
    assert stop in ("interrupted", "length")
    assert 25 <= stats.rows_made <= 40
