"""Edits of the history: truncate a reply, drop, move or append turns, replace the system turn.

Each returns a pure function from turns to turns for `Talk.edit`. Knows rows only through the prompt
format. Long texts are tokenized on another thread, the rest runs on the event loop of the session.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from mosslive.engine import Engine
from mosslive.rows import Turn
from mosslive.talk.dialogue import HistoryTurn, close_heard

Edit = Callable[[list[HistoryTurn]], Sequence[HistoryTurn]]


def truncate_reply(engine: Engine, turn: int, codes: int) -> Edit:
    """Keeps the first `codes` of the reply to this turn; drops the reply if it keeps none."""

    def edit(turns: list[HistoryTurn]) -> list[HistoryTurn]:
        kept = []
        for said in turns:
            if said.turn == turn and said.role == "assistant":
                said = _truncated(engine, said, codes)
            if said.rows:
                kept.append(said)
        return kept

    return edit


def drop(numbers: Sequence[int], role: str | None) -> Edit:
    """Drops the turns of this role with these numbers."""
    dropped = set(numbers)

    def edit(turns: list[HistoryTurn]) -> list[HistoryTurn]:
        return [said for said in turns if said.turn not in dropped or said.role != role]

    return edit


def move(numbers: Sequence[int], after: Sequence[tuple[int, str | None]]) -> Edit:
    """Moves these turns behind the last turn of `after`, (number, role) pairs. If the history has
    none of those: to the beginning, behind the session's system turn."""
    chosen, places = set(numbers), set(after)

    def edit(turns: list[HistoryTurn]) -> list[HistoryTurn]:
        moved = [said for said in turns if said.turn in chosen]
        rest = [said for said in turns if said.turn not in chosen]
        place = int(bool(rest) and _is_system(rest[0]))
        for index, said in enumerate(rest):
            if (said.turn, said.role) in places:
                place = index + 1
        return [*rest[:place], *moved, *rest[place:]]

    return edit


def append(said: Sequence[HistoryTurn], number: int) -> Edit:
    """Appends the turns of a one-shot reply under this number."""
    return lambda turns: [*turns, *(replace(one, turn=number) for one in said)]


async def with_system(engine: Engine, text: str) -> Edit:
    """Replaces the session's system turn; without text drops it. Tokenizes on another thread: a
    long text takes a while, and other sessions run meanwhile."""
    turn = Turn("system", text=text)
    rows = tuple(await asyncio.to_thread(engine.format.turn, turn)) if text else ()

    def edit(turns: list[HistoryTurn]) -> list[HistoryTurn]:
        rest = turns[1:] if turns and _is_system(turns[0]) else turns
        return [HistoryTurn("system", "text", rows), *rest] if rows else rest

    return edit


def _is_system(said: HistoryTurn) -> bool:
    """Whether it is the session's system turn. One that a client created has another number."""
    return said.role == "system" and said.turn == 0


def _truncated(engine: Engine, said: HistoryTurn, codes: int) -> HistoryTurn:
    prefix = engine.format.reply_prefix(said.kind)
    rows = list(said.rows[len(prefix) :])
    closing = close_heard(rows, codes, engine.format.footer(), engine.ids)
    if not closing.kept:
        return replace(said, rows=())
    return replace(said, rows=(*prefix, *rows[: closing.kept], *closing.rows))
