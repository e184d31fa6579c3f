"""A thousand turns and edits that wait together cost what they cost one by one, and no more."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mosslive import LanguageModel, Turn
from mosslive.rows import TextTokenizer
from mosslive.talk.dialogue import Dialogue, HistoryTurn
from mosslive.talk.dialogue_queue import AT_ONCE, DialogueQueue
from tests.talk.rig import Rig, run
from tests.talk.test_interruption import ASKED, PUSH_TO_TALK, QUESTION, SYSTEM, history
from tests.talk.toy import TOY_VOICE, ToyCodec

MANY = 40


def without(number: int) -> Callable[[list[HistoryTurn]], Sequence[HistoryTurn]]:
    return lambda turns: [said for said in turns if said.turn != number]


@pytest.mark.parametrize("listening", [False, True])
def test_waiting_edits_are_applied_together(
    nano_lm: LanguageModel, monkeypatch: pytest.MonkeyPatch, listening: bool
) -> None:
    """The engine gets the result of every `AT_ONCE` edits once, no turn is tokenised again, and
    the rows are those of the edits one after the other, also while the user speaks."""
    counts = {"replace_turns": 0, "encode": 0}

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            counts[name] += 1
            return real(*given, **named)

        return call

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        numbers = [rig.talk.say("user", "One") for _ in range(MANY)]
        await rig.settle()
        if listening:
            await rig.say(QUESTION, 16_000)
        with monkeypatch.context() as patch:
            patch.setattr(
                Dialogue, "replace_turns", counted("replace_turns", Dialogue.replace_turns)
            )
            patch.setattr(TextTokenizer, "encode", counted("encode", TextTokenizer.encode))
            for number in numbers[1:]:
                rig.talk.edit(without(number))
            await rig.settle()
        assert 0 < counts["replace_turns"] <= -(-MANY // AT_ONCE)
        assert counts["encode"] == 0
        left = [SYSTEM, Turn("user", text="One")]
        if listening:
            rig.talk.commit("text")
            await rig.until(lambda: not rig.talk.replying)
            assert rig.rows[: len(history(nano_lm, [*left, ASKED]))] == history(
                nano_lm, [*left, ASKED]
            )
        else:
            assert rig.rows == history(nano_lm, left)
        await rig.close()
        rig.assert_clean()

    run(story())


def test_edits_and_turns_keep_their_order(nano_lm: LanguageModel) -> None:
    """An edit finds all turns said before it and none said after it, however many wait."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        seen: list[list[int]] = []

        def look(turns: list[HistoryTurn]) -> list[HistoryTurn]:
            seen.append([said.turn for said in turns])
            return turns

        first = rig.talk.say("user", "One")
        rig.talk.edit(look)
        rig.talk.edit(without(first))
        rig.talk.edit(look)
        second = rig.talk.say("user", "Two")
        rig.talk.edit(look)
        await rig.settle()
        assert seen == [[0, first], [0], [0, second]]
        await rig.close()
        rig.assert_clean()

    run(story())


def test_an_edit_that_fails_among_others(nano_lm: LanguageModel) -> None:
    """An edit that raises is reported and skipped; those that wait with it are applied."""

    def broken(turns: list[HistoryTurn]) -> list[HistoryTurn]:
        raise ValueError("no")

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        numbers = [rig.talk.say("user", "One") for _ in range(3)]
        rig.talk.edit(without(numbers[0]))
        rig.talk.edit(broken)
        rig.talk.edit(without(numbers[2]))
        await rig.settle()
        assert [said.turn for said in rig.talk.turns] == [0, numbers[1]]
        assert [type(event).__name__ for event in rig.events] == ["TalkFault"]
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_long_queue_costs_each_task_the_same() -> None:
    """Twice as many tasks that wait for the dialogue cause twice as many calls of the event loop,
    not four times as many."""

    async def calls(tasks: int) -> int:
        loop, queue, count = asyncio.get_running_loop(), DialogueQueue(), 0
        real, order, start = loop.call_soon, [], asyncio.Event()

        def call_soon(*given: Any, **named: Any) -> asyncio.Handle:
            nonlocal count
            count += 1
            return real(*given, **named)

        async def work(number: int) -> None:
            await start.wait()
            order.append(number)

        loop.call_soon = call_soon  # type: ignore[method-assign, assignment]
        try:
            queued = [queue.submit(lambda n=n: work(n)) for n in range(tasks)]  # type: ignore[misc]
            await asyncio.sleep(0)
            start.set()
            await asyncio.wait(queued)
        finally:
            loop.call_soon = real  # type: ignore[method-assign]
        await asyncio.sleep(0)
        assert order == list(range(tasks))
        assert queue.tasks == 0
        return count

    async def story() -> None:
        assert await calls(400) < 2.5 * await calls(200)

    run(story())
