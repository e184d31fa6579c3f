"""The order in which tasks change the dialogue: one at a time, first come, first served.

A task that is cancelled before its turn leaves the queue. A task that repairs the dialogue after it
takes its place (`submit_after`), so that later tasks find the dialogue repaired. A task that ends
wakes the next one only, so the cost of a task does not depend on the length of the queue. Edits of
the history are batched (`Edits`). Runs on the event loop. Knows nothing of what the tasks do.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from mosslive.talk.dialogue import Dialogue, HistoryTurn, require_whole
from mosslive.talk.events import EventQueue

Work = Callable[[], Awaitable[None]]
Task = asyncio.Task[None]
Change = Callable[[list[HistoryTurn]], Sequence[HistoryTurn]]

# An edit of the longest history takes about 0.2 ms, the engine's call for the result 1 ms.
AT_ONCE = 16


class DialogueQueue:
    def __init__(self) -> None:
        self._queue: deque[Task] = deque()  # not done; the first one runs
        self._concurrent: set[Task] = set()  # tasks outside the queue
        # For each task in the queue: set when it may run, or when it is done.
        self._may_run: dict[Task, asyncio.Event] = {}

    def submit(self, work: Work) -> Task:
        """Runs `work` after all tasks in the queue."""
        task = self._start(lambda: self._run_in_turn(work))
        self._insert(task, len(self._queue))
        return task

    def submit_after(self, other: Task, work: Work) -> Task:
        """Runs `work` directly after `other`, before all tasks that were submitted later."""
        task = self._start(lambda: self._run_in_turn(work))
        self._insert(task, self._place_after(other))
        return task

    def run_concurrently(self, work: Work, other: Task | None = None) -> Task:
        """Runs `work` now, or as soon as `other` may run. For work that does not disturb `other`,
        or does not touch the dialogue."""

        async def run() -> None:
            if other:
                await self._wait_for(other)
            await work()

        task = self._start(run)
        self._concurrent.add(task)
        task.add_done_callback(self._concurrent.discard)
        return task

    def join(self, task: Task, other: Task) -> None:
        """Moves a concurrent task into the queue after `other`; later tasks wait for it."""
        if not task.done():
            self._concurrent.discard(task)
            self._insert(task, self._place_after(other))

    def is_last(self, task: Task | None) -> bool:
        """Whether no task was submitted after it."""
        return bool(self._queue) and self._queue[-1] is task

    @property
    def tasks(self) -> int:
        return len({*self._queue, *self._concurrent})

    async def close(self) -> None:
        tasks = {*self._queue, *self._concurrent}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run_in_turn(self, work: Work) -> None:
        task = asyncio.current_task()
        assert task is not None, "runs as a task"
        await self._wait_for(task)
        await work()

    async def _wait_for(self, task: Task) -> None:
        """Waits until `task` may run."""
        if may_run := self._may_run.get(task):
            await may_run.wait()

    def _place_after(self, other: Task) -> int:
        return self._queue.index(other) + 1 if other in self._may_run else len(self._queue)

    def _insert(self, task: Task, place: int) -> None:
        self._may_run[task] = asyncio.Event()
        self._queue.insert(place, task)
        self._wake_first()
        task.add_done_callback(self._remove)

    def _remove(self, task: Task) -> None:
        self._may_run.pop(task).set()
        if self._queue[0] is task:
            self._queue.popleft()
        else:
            self._queue.remove(task)
        self._wake_first()

    def _wake_first(self) -> None:
        if self._queue:
            self._may_run[self._queue[0]].set()

    def _start(self, work: Work) -> Task:
        async def run() -> None:
            await work()

        return asyncio.get_running_loop().create_task(run())


class Edits:
    """Edits of the history that one task applies. Each edit is a function from turns to turns.
    They are applied `AT_ONCE` at a time, with one call of the engine, so that a thousand edits cost
    little more than a few and never block the event loop for long. Invariant: the result is that of
    the edits one after the other."""

    def __init__(self, begin: Callable[[], Dialogue], events_out: EventQueue) -> None:
        """`begin`: called before each group of edits; returns the current dialogue."""
        self._begin, self._events = begin, events_out
        self._waiting: deque[tuple[int, Change]] = deque()
        self.task: Task | None = None  # runs `run`; set by the caller

    @property
    def pending(self) -> bool:
        return self.task is not None and not self.task.done()

    def add(self, turn: int, change: Change) -> None:
        """`turn`: the number under which a fault is reported."""
        self._waiting.append((turn, change))

    async def run(self) -> None:
        """Applies all edits, also those added meanwhile."""
        while self._waiting:
            count = min(AT_ONCE, len(self._waiting))
            edits = [self._waiting.popleft() for _ in range(count)]
            if not self._apply(edits) and count > 1:
                for edit in edits:  # the engine has no room for all of them, but may for some
                    self._apply([edit])
                    await asyncio.sleep(0)  # other sessions run in between
            await asyncio.sleep(0)

    def _apply(self, edits: list[tuple[int, Change]]) -> bool:
        """False: the engine refused the result, and nothing has changed. Reports this as a fault
        only if `edits` is a single one."""
        dialogue = self._begin()
        turns = dialogue.turns
        failed: list[tuple[int, Exception]] = []
        for turn, change in edits:
            try:
                changed = list(change(list(turns)))
                require_whole(changed, dialogue.format, known=turns)
                turns = changed
            except Exception as error:
                failed.append((turn, error))
        try:
            dialogue.replace_turns(turns)
        except Exception as error:
            if len(edits) == 1:
                self._events.fault(edits[0][0], "memory", error)
            return False
        for turn, cause in failed:
            self._events.fault(turn, "memory", cause)
        return True
