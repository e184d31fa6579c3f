"""Edits of what was said: a spoken turn cut short, turns taken out, moved, the system turn changed.

Pure functions over turns, for `Talk.edit`. Knows rows through the prompt format only.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from mosslive.engine import Engine
from mosslive.rows import Turn
from mosslive.talk.dialogue import HistoryTurn, close_heard

Edit = Callable[[list[HistoryTurn]], Sequence[HistoryTurn]]


def cut_reply(engine: Engine, turn: int, codes: int) -> Edit:
    """The reply of that number keeps its first codes; with none of them it was never given."""

    def edit(turns: list[HistoryTurn]) -> list[HistoryTurn]:
        kept = []
        for said in turns:
            if said.turn == turn and said.role == "assistant":
                said = _shortened(engine, said, codes)
            if said.rows:
                kept.append(said)
        return kept

    return edit


def drop(numbers: Sequence[int], role: str | None) -> Edit:
    gone = set(numbers)

    def edit(turns: list[HistoryTurn]) -> list[HistoryTurn]:
        return [said for said in turns if said.turn not in gone or said.role != role]

    return edit


def move(numbers: Sequence[int], after: Sequence[tuple[int, str | None]]) -> Edit:
    """Those turns stand behind the last that is there of `after`, (number, role); if none is, at
    the beginning, but behind the system turn."""
    moved, places = set(numbers), set(after)

    def edit(turns: list[HistoryTurn]) -> list[HistoryTurn]:
        mine = [said for said in turns if said.turn in moved]
        rest = [said for said in turns if said.turn not in moved]
        place = int(bool(rest) and _is_system(rest[0]))
        for index, said in enumerate(rest):
            if (said.turn, said.role) in places:
                place = index + 1
        return [*rest[:place], *mine, *rest[place:]]

    return edit


def append(said: Sequence[HistoryTurn], number: int) -> Edit:
    """What was said aside is part of the conversation, under a number of its own."""
    return lambda turns: [*turns, *(replace(one, turn=number) for one in said)]


async def with_system(engine: Engine, text: str) -> Edit:
    """Tokenises on another thread: a long text takes a while, in which others go on."""
    turn = Turn("system", text=text)
    rows = tuple(await asyncio.to_thread(engine.format.turn, turn)) if text else ()

    def edit(turns: list[HistoryTurn]) -> list[HistoryTurn]:
        rest = turns[1:] if turns and _is_system(turns[0]) else turns
        return [HistoryTurn("system", "text", rows), *rest] if rows else rest

    return edit


def _is_system(said: HistoryTurn) -> bool:
    """The session's own system turn; one a client created has a number."""
    return said.role == "system" and said.turn == 0


def _shortened(engine: Engine, said: HistoryTurn, codes: int) -> HistoryTurn:
    prefix = engine.format.reply_prefix(said.kind)
    rows = list(said.rows[len(prefix) :])
    closing = close_heard(rows, codes, engine.format.footer(), engine.ids)
    if not closing.kept:
        return replace(said, rows=())
    return replace(said, rows=(*prefix, *rows[: closing.kept], *closing.rows))
