"""The turns of a conversation, and the engine's rows, which are kept equal to them.

The list holds closed turns; at most one turn is open: the rows after them. If the context is full
the oldest turns leave, each user's turn with its replies, never the system turn, never half of a
turn. Runs on the event loop. Knows nothing of sound or time. Invariant: outside a call the engine's
rows are those of the closed turns, then those of the open turn.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import is_
from typing import NamedTuple

from mosslive.config import SECONDS_PER_CODE, Sampling
from mosslive.engine.conversation import Conversation, ReplyStream
from mosslive.engine.engine import Engine
from mosslive.engine.errors import EngineFull
from mosslive.errors import MossliveError
from mosslive.rows import PromptFormat, ReplyKind, Role, Row, RowIds

CLOSING_ROWS = 8  # enough to end a turn and to begin the next


@dataclass(frozen=True, eq=False)
class HistoryTurn:
    """A closed turn."""

    role: Role
    kind: ReplyKind
    rows: tuple[Row, ...]
    turn: int = 0  # its number in the events; 0: from before this conversation


def require_whole(
    turns: Sequence[HistoryTurn], form: PromptFormat, known: Collection[HistoryTurn] = ()
) -> None:
    """Checks turns of the caller: each goes from its header to its footer, as the model was
    trained on them. `known`: turns that were checked before."""
    footer, known = form.footer(), set(known)
    for number, said in enumerate(turns):
        if not isinstance(said, HistoryTurn):
            raise MossliveError(
                f"turn {number} is of type {type(said).__name__}; allowed: turns as Talk.turns and "
                f"load_turns have them"
            )
        if said in known:
            continue
        header, rows = form.header(said.role), list(said.rows)
        whole = rows[: len(header)] == header and rows[-len(footer) :] == footer
        if not whole or len(rows) < len(header) + len(footer):
            raise MossliveError(
                f"turn {number} is not whole; allowed: rows from the {said.role}'s header to the "
                f"footer of a turn"
            )


class Dialogue:
    def __init__(
        self,
        conversation: Conversation,
        form: PromptFormat,
        ids: RowIds,
        limit: int,
        keep: float,
        on_trim: Callable[[int, int], None],
        turns: Sequence[HistoryTurn] = (),
    ) -> None:
        """`limit`: rows in all. `keep`: the part of them that trimming leaves. `on_trim(turns,
        rows)`: called with the numbers of turns and rows that left. `turns`: those whose rows the
        conversation has already."""
        self.conversation, self.format, self.ids = conversation, form, ids
        self.turns: list[HistoryTurn] = list(turns)  # only this class changes it
        self.start = sum(len(said.rows) for said in turns)  # row where the open turn begins
        self._limit, self._keep, self._on_trim = limit, keep, on_trim

    @classmethod
    def open(
        cls, engine: Engine, context_rows: int, keep: float, on_trim: Callable[[int, int], None]
    ) -> "Dialogue":
        """An empty dialogue."""
        # One conversation never takes all pages. A pool that is smaller than one conversation's
        # overhead gives no limit; there the engine refuses.
        own = engine.rows_each(1) or context_rows
        limit = min(context_rows, engine.config.max_position_embeddings, own)
        return cls(engine.open(), engine.format, engine.ids, limit, keep, on_trim)

    def branch(self) -> "Dialogue":
        """A second dialogue that shares all rows so far, the open turn included."""
        fork = self.conversation.fork()
        return Dialogue(
            fork, self.format, self.ids, self._limit, self._keep, self._on_trim, self.turns
        )

    def close(self) -> None:
        self.conversation.close()

    # The open turn.

    @property
    def open_rows(self) -> int:
        return len(self.conversation) - self.start

    def append(self, rows: Sequence[Row], reserve: int = 0) -> None:
        """Appends to the open turn. `reserve`: rows that should still fit after these."""
        if len(self.conversation) < self.start:
            self.drop_open()
        self.make_room(len(rows), reserve)
        self.conversation.append(list(rows))

    def cut(self, length: int) -> None:
        """The open turn keeps its first `length` rows."""
        self.conversation.truncate(self.start + length)

    def close_turn(self, role: Role, kind: ReplyKind, turn: int = 0) -> None:
        """Adds the open turn, which must be whole, to the closed turns."""
        said = HistoryTurn(role, kind, tuple(self.conversation.rows[self.start :]), turn)
        self.turns.append(said)
        self.start += len(said.rows)

    def reopen(self) -> HistoryTurn:
        """The last closed turn becomes the open one."""
        said = self.turns.pop()
        self.start -= len(said.rows)
        return said

    def say(
        self, role: Role, kind: ReplyKind, rows: Sequence[Row], reserve: int = 0, turn: int = 0
    ) -> None:
        """Appends a whole turn."""
        self.append(rows, reserve)
        self.close_turn(role, kind, turn)

    def say_all(self, turns: Sequence[HistoryTurn]) -> None:
        """Appends whole turns of another conversation, under number 0. If nothing has to leave for
        them, the engine gets all rows in one call."""
        coming = sum(len(said.rows) for said in turns)
        if not turns or len(self.conversation) + coming > self._limit:
            for said in turns:
                self.say(said.role, said.kind, said.rows)
            return
        self.append([*chain.from_iterable(said.rows for said in turns)])
        rows = self.conversation.rows
        for said in turns:
            end = self.start + len(said.rows)
            self.turns.append(HistoryTurn(said.role, said.kind, tuple(rows[self.start : end])))
            self.start = end

    def drop_open(self) -> None:
        """Removes the open turn. Also restores rows that the engine has lost: it removes rows that
        it could not compute."""
        kept = min(self.start, len(self.conversation))
        self.conversation.truncate(kept)
        if kept < self.start:
            rows = [*chain.from_iterable(said.rows for said in self.turns)]
            self.conversation.append(rows[kept:])

    def reply(
        self, sampling: Sampling, prefix: Sequence[Row], speculative: bool = False
    ) -> ReplyStream:
        """Starts a reply of at most `sampling.max_new` rows, fewer if the turn could not be closed
        otherwise. `speculative`: see `Conversation.reply`."""
        if len(self.conversation) < self.start:
            self.drop_open()
        self.make_room(len(prefix) + 1 + CLOSING_ROWS, sampling.max_new)
        room = self._limit - len(self.conversation) - len(prefix) - CLOSING_ROWS
        sampling = replace(sampling, max_new=min(sampling.max_new, room))
        return self.conversation.reply(sampling, list(prefix), speculative)

    # The context.

    def make_room(self, rows: int, reserve: int = 0) -> None:
        """Makes room for `rows`; if `reserve` would not fit after them, turns leave too. Raises
        `EngineFull` if the rows do not fit and no turn is left to remove."""
        reserve = min(reserve, self._limit // 2)
        if len(self.conversation) + rows + reserve > self._limit:
            target = min(int(self._keep * self._limit), self._limit - reserve)
            # If no rows come yet, the latest group stays: a short question may still fit.
            stay = 0 if rows or self.open_rows else latest_group(self.turns)
            older = self.turns[: len(self.turns) - stay]
            kept = sum(len(said.rows) for said in self.turns[len(older) :])
            gone = leaving(older, self.open_rows + rows + kept, target)
            if gone:
                self._leave(gone)
        self._check_length(len(self.conversation) + rows)

    def _leave(self, gone: list[HistoryTurn]) -> None:
        leaves = set(gone)
        self.replace_turns([said for said in self.turns if said not in leaves])
        self._on_trim(len(gone), sum(len(said.rows) for said in gone))

    def replace_turns(self, turns: Sequence[HistoryTurn]) -> None:
        """Replaces the closed turns; the open turn stays. Positions count from the first row, so
        rows after the first change are computed again; pages before it are found by content. All or
        nothing. Needs no page beyond those of the longer of the two. If the turns exceed the limit
        the oldest groups leave; raises `EngineFull` if the rest is still too long."""
        turns = self._within_limit(turns)
        same_turns = len(turns) == len(self.turns) and all(map(is_, turns, self.turns))
        if same_turns and len(self.conversation) >= self.start:
            return
        before = self.conversation.rows
        rows = [*chain.from_iterable(said.rows for said in turns), *before[self.start :]]
        pairs = enumerate(zip(before, rows, strict=False))
        shorter = min(len(before), len(rows))
        same = next((index for index, (old, new) in pairs if old != new), shorter)
        self.conversation.rewrite(same, rows[same:], check=False)
        self.turns = list(turns)
        self.start = sum(len(said.rows) for said in turns)

    def _within_limit(self, turns: Sequence[HistoryTurn]) -> Sequence[HistoryTurn]:
        open_rows = max(0, self.open_rows)
        gone = leaving(turns, open_rows, self._limit)
        if gone:
            leaves = set(gone)
            turns = [said for said in turns if said not in leaves]
        self._check_length(sum(len(said.rows) for said in turns) + open_rows)
        if gone:
            self._on_trim(len(gone), sum(len(said.rows) for said in gone))
        return turns

    def _check_length(self, rows: int) -> None:
        if rows > self._limit:
            seconds = self._limit * SECONDS_PER_CODE
            raise EngineFull(
                "context",
                f"the turn is too long: {rows} rows and no turn left to forget; allowed: "
                f"{self._limit} rows ({seconds:.1f} s of speech), the system turn included; use "
                f"shorter turns",
            )


# Which turns leave. A group is a user's turn and all turns up to the next user's turn. A group
# leaves as a whole: the model was not trained on a reply without its question.


def latest_group(turns: Sequence[HistoryTurn]) -> int:
    """How many turns the latest group has."""
    places = [index for index, said in enumerate(turns) if said.role == "user"]
    return len(turns) - places[-1] if places else 0


def leaving(turns: Sequence[HistoryTurn], coming: int, target: int) -> list[HistoryTurn]:
    """The turns to remove, so that the rest and `coming` rows fill at most `target` rows: the
    oldest groups first, never the system turn."""
    total = sum(len(said.rows) for said in turns) + coming
    gone: list[HistoryTurn] = []
    for said in turns:
        if said.role == "system":
            continue
        leaves_with_group = bool(gone) and said.role != "user"
        if total <= target and not leaves_with_group:
            break
        gone.append(said)
        total -= len(said.rows)
    return gone


# How a reply is closed. The turn gets the form of the prompt format: the end-of-speech row closes
# speech, the footer closes the turn.


class TurnEnding(NamedTuple):
    kept: int  # rows of the reply that stay; 0: nothing was said, so there is no turn
    rows: list[Row]  # to append after them


def close_whole(rows: Sequence[Row], footer: Sequence[Row], ids: RowIds) -> TurnEnding:
    """For a reply that ended by itself or by length."""
    if rows and rows[-1][0] == footer[0][0]:  # the model wrote the first row of the footer
        if len(rows) == 1:
            return TurnEnding(0, [])
        return TurnEnding(len(rows), list(footer[1:]))
    kept = len(rows) - (bool(rows) and rows[-1][0] in ids.stops)
    return _closed(rows, kept, footer, ids)


def close_heard(
    rows: Sequence[Row], heard_codes: int, footer: Sequence[Row], ids: RowIds
) -> TurnEnding:
    """For a spoken reply of which so many codes were heard. Rows after the last of them go."""
    codes = code_rows(rows, ids)[:heard_codes]
    return _closed(rows, codes[-1] + 1 if codes else 0, footer, ids)


def code_rows(rows: Sequence[Row], ids: RowIds) -> list[int]:
    """The indices of a reply's codes: the speech rows before the first end of speech."""
    found = []
    for index, row in enumerate(rows):
        if ids.is_speech(row):
            if row[1] >= ids.eosp:
                break
            found.append(index)
    return found


def _closed(rows: Sequence[Row], kept: int, footer: Sequence[Row], ids: RowIds) -> TurnEnding:
    if not kept:
        return TurnEnding(0, [])
    last = rows[kept - 1]
    speaking = ids.is_speech(last) and last[1] != ids.eosp
    end = [(ids.modality_pad, ids.eosp)] if speaking else []
    return TurnEnding(kept, [*end, *footer])
