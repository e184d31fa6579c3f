"""What was said: the turns of a conversation, and the engine's rows kept equal to them.

Turns are whole: the list holds closed ones, and at most one is open, the rows after them. When the
context is full the oldest exchanges leave, never the system turn, never half of a turn. Knows
nothing of sound or time. Invariant: outside a call the engine's rows are those of the turns, then
of the open one.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import is_

from mosslive.config import SECONDS_PER_CODE, Sampling
from mosslive.engine.conversation import Conversation, ReplyStream
from mosslive.engine.engine import Engine
from mosslive.engine.errors import EngineFull
from mosslive.errors import MossliveError
from mosslive.rows import PromptFormat, ReplyKind, Role, Row, RowIds

CLOSING_ROWS = 8  # what ends a turn and begins the next, generously


@dataclass(frozen=True, eq=False)
class HistoryTurn:
    """A closed turn."""

    role: Role
    kind: ReplyKind
    rows: tuple[Row, ...]
    turn: int = 0  # its number, as events have it; 0: from before this conversation


def require_whole(
    turns: Sequence[HistoryTurn], form: PromptFormat, known: Collection[HistoryTurn] = ()
) -> None:
    """For turns from outside: each from its header to its footer, as the model was shown them.
    `known`: turns that are not looked at again."""
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
        engine: Engine,
        context_rows: int,
        keep: float,
        on_trim: Callable[[int, int], None],
    ) -> None:
        """`on_trim(turns, rows)`: told what left."""
        self.format: PromptFormat = engine.format
        self.ids: RowIds = engine.ids
        self.turns: list[HistoryTurn] = []  # changed here only
        self.start = 0  # row where the open turn begins
        self.conversation: Conversation = engine.open()
        # One conversation never takes all pages. A pool that is smaller than its overhead has
        # no rule to offer; there the engine refuses.
        own = engine.rows_each(1) or context_rows
        self._limit = min(context_rows, engine.config.max_position_embeddings, own)
        self._keep, self._on_trim = keep, on_trim

    # The open turn.

    @property
    def open_rows(self) -> int:
        return len(self.conversation) - self.start

    def append(self, rows: Sequence[Row], reserve: int = 0) -> None:
        """To the open turn. `reserve`: rows that should still fit after these."""
        if len(self.conversation) < self.start:
            self.drop_open()
        self.make_room(len(rows), reserve)
        self.conversation.append(list(rows))

    def cut(self, length: int) -> None:
        """The open turn keeps its first `length` rows."""
        self.conversation.truncate(self.start + length)

    def close_turn(self, role: Role, kind: ReplyKind, turn: int = 0) -> None:
        """The open turn, which stands there whole, is one of the turns now."""
        said = HistoryTurn(role, kind, tuple(self.conversation.rows[self.start :]), turn)
        self.turns.append(said)
        self.start += len(said.rows)

    def reopen(self) -> HistoryTurn:
        """The last turn is the open one again."""
        said = self.turns.pop()
        self.start -= len(said.rows)
        return said

    def say(
        self, role: Role, kind: ReplyKind, rows: Sequence[Row], reserve: int = 0, turn: int = 0
    ) -> None:
        """A whole turn."""
        self.append(rows, reserve)
        self.close_turn(role, kind, turn)

    def say_all(self, turns: Sequence[HistoryTurn]) -> None:
        """Whole turns of another conversation, under number 0. Where nothing has to leave for them
        the engine is told all at once."""
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
        """Nothing was said after the last turn. Also says again what the engine has lost: rows that
        it could not compute are taken out there."""
        kept = min(self.start, len(self.conversation))
        self.conversation.truncate(kept)
        if kept < self.start:
            rows = [*chain.from_iterable(said.rows for said in self.turns)]
            self.conversation.append(rows[kept:])

    def reply(self, sampling: Sampling, prefix: Sequence[Row]) -> ReplyStream:
        """As long as `sampling` says, and not longer than leaves room to close the turn."""
        if len(self.conversation) < self.start:
            self.drop_open()
        self.make_room(len(prefix) + 1 + CLOSING_ROWS, sampling.max_new)
        room = self._limit - len(self.conversation) - len(prefix) - CLOSING_ROWS
        sampling = replace(sampling, max_new=min(sampling.max_new, room))
        return self.conversation.reply(sampling, list(prefix))

    # Trial and replacement.

    def branch(self) -> "Dialogue":
        """A second dialogue that shares everything so far."""
        twin = object.__new__(Dialogue)
        twin.__dict__.update(self.__dict__)
        twin.turns = list(self.turns)
        twin.conversation = self.conversation.fork()
        return twin

    def close(self) -> None:
        self.conversation.close()

    # Memory.

    def make_room(self, rows: int, reserve: int = 0) -> None:
        """For `rows` that will come; if `reserve` would not fit after them, turns leave too."""
        reserve = min(reserve, self._limit // 2)
        if len(self.conversation) + rows + reserve > self._limit:
            target = min(int(self._keep * self._limit), self._limit - reserve)
            # While nothing comes, the latest exchange stays: a short question may still fit.
            stay = 0 if rows or self.open_rows else latest_exchange(self.turns)
            older = self.turns[: len(self.turns) - stay]
            kept = sum(len(said.rows) for said in self.turns[len(older) :])
            gone = leaving(older, self.open_rows + rows + kept, target)
            if gone:
                self._leave(gone)
        have = len(self.conversation) + rows
        if have > self._limit:
            seconds = self._limit * SECONDS_PER_CODE
            raise EngineFull(
                "context",
                f"the turn is too long: {have} rows and no turn left to forget; allowed: "
                f"{self._limit} rows ({seconds:.1f} s of speech), the system turn included; use "
                f"shorter turns",
            )

    def _leave(self, gone: list[HistoryTurn]) -> None:
        leaves = set(gone)
        self.replace_turns([said for said in self.turns if said not in leaves])
        self._on_trim(len(gone), sum(len(said.rows) for said in gone))

    def replace_turns(self, turns: Sequence[HistoryTurn]) -> None:
        """These are the turns; the open one stays. Positions count from the first row, so what
        follows the first change is computed again; pages before it are found by content. All or
        nothing. No page is needed beyond those of the longer of the two."""
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


def latest_exchange(turns: Sequence[HistoryTurn]) -> int:
    """How many turns the latest exchange has."""
    places = [index for index, said in enumerate(turns) if said.role == "user"]
    return len(turns) - places[-1] if places else 0


def leaving(turns: Sequence[HistoryTurn], coming: int, target: int) -> list[HistoryTurn]:
    """The turns to forget, so that the rest and `coming` rows fill at most `target` rows: the
    oldest exchanges first. An exchange is a user's turn and all that follows it up to the next
    one: an answer without its question would be a context that no model was taught. The system
    turn stays."""
    total = sum(len(said.rows) for said in turns) + coming
    gone: list[HistoryTurn] = []
    for said in turns:
        if said.role == "system":
            continue
        goes_along = bool(gone) and said.role != "user"
        if total <= target and not goes_along:
            break
        gone.append(said)
        total -= len(said.rows)
    return gone
