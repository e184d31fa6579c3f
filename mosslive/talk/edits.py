"""Edits of what was said that wait for their turn: many of them are one piece of work.

Each edit is a function from turns to turns. Those that wait are applied some at a time, and the
engine is told the result once for each time, so that a thousand edits cost little more than a few
and never hold the event loop for long. Knows nothing of who speaks. Invariant: the turns are those
that the edits give one after the other.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from mosslive.talk.dialogue import Dialogue, HistoryTurn, require_whole
from mosslive.talk.dialogue_queue import Task
from mosslive.talk.faults import Faults

Change = Callable[[list[HistoryTurn]], Sequence[HistoryTurn]]

# An edit of the longest history takes about 0.2 ms, and telling the engine 1 ms.
AT_ONCE = 16


class Edits:
    def __init__(self, begin: Callable[[], Dialogue], faults: Faults) -> None:
        """`begin`: called before some of them are applied; returns the dialogue as it is then."""
        self._begin, self._faults = begin, faults
        self._waiting: deque[tuple[int, Change]] = deque()
        self.task: Task | None = None  # applies them; set by who starts it

    @property
    def pending(self) -> bool:
        return self.task is not None and not self.task.done()

    def add(self, turn: int, change: Change) -> None:
        """`turn`: the number under which a fault is reported."""
        self._waiting.append((turn, change))

    async def run(self) -> None:
        """Until none waits, those added meanwhile too."""
        while self._waiting:
            count = min(AT_ONCE, len(self._waiting))
            edits = [self._waiting.popleft() for _ in range(count)]
            if not self._apply(edits) and count > 1:
                for edit in edits:  # the engine has no room for all of them, but may for some
                    self._apply([edit])
                    await asyncio.sleep(0)  # other sessions run in between
            await asyncio.sleep(0)

    def _apply(self, edits: list[tuple[int, Change]]) -> bool:
        """False: the engine refused the result, and nothing has changed. Reports a fault then if
        there is one edit only."""
        dialogue = self._begin()
        turns = dialogue.turns
        faults: list[tuple[int, Exception]] = []
        for turn, change in edits:
            try:
                changed = list(change(list(turns)))
                require_whole(changed, dialogue.format, known=turns)
                turns = changed
            except Exception as error:
                faults.append((turn, error))
        try:
            dialogue.replace_turns(turns)
        except Exception as error:
            if len(edits) == 1:
                self._faults.tell(edits[0][0], "memory", error)
            return False
        for turn, fault in faults:
            self._faults.tell(turn, "memory", fault)
        return True
