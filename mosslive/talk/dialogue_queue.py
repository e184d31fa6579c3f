"""Who may change the dialogue: one task at a time, in the order in which they asked.

A task that is cancelled before its turn simply leaves the line; what has to be put right after it
takes its place there, ahead of all who asked later. Knows nothing of what tasks do. A task that
ends wakes the next one only, so that a long line costs each of its tasks the same as a short one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

Work = Callable[[], Awaitable[None]]
Task = asyncio.Task[None]


class DialogueQueue:
    def __init__(self) -> None:
        self._line: deque[Task] = deque()  # asked, and not done; the first has the floor
        self._beside: set[Task] = set()
        # For the turn of each task in the line: set when it has come, or when it is over.
        self._turns: dict[Task, asyncio.Event] = {}

    def take(self, work: Work) -> Task:
        """Runs it when all who asked before are done."""
        task = self._start(lambda: self._in_turn(work))
        self._stand(task, len(self._line))
        return task

    def submit_after(self, other: Task, work: Work) -> Task:
        """The same, ahead of all who asked after `other`."""
        task = self._start(lambda: self._in_turn(work))
        self._stand(task, self._place_behind(other))
        return task

    def run_concurrently(self, work: Work, other: Task | None = None) -> Task:
        """Runs it now, or when `other` may run: work that does not mind that one, or does not touch
        the dialogue."""

        async def run() -> None:
            if other:
                await self._turn_of(other)
            await work()

        task = self._start(run)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    def join(self, task: Task, other: Task) -> None:
        """What was begun beside has the floor after `other`; who asked later waits for it."""
        if not task.done():
            self._beside.discard(task)
            self._stand(task, self._place_behind(other))

    def is_last(self, task: Task | None) -> bool:
        """Whether nobody has asked since."""
        return bool(self._line) and self._line[-1] is task

    @property
    def tasks(self) -> int:
        return len({*self._line, *self._beside})

    async def close(self) -> None:
        tasks = {*self._line, *self._beside}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _in_turn(self, work: Work) -> None:
        task = asyncio.current_task()
        assert task is not None, "runs as a task"
        await self._turn_of(task)
        await work()

    async def _turn_of(self, task: Task) -> None:
        if turn := self._turns.get(task):
            await turn.wait()

    def _place_behind(self, other: Task) -> int:
        return self._line.index(other) + 1 if other in self._turns else len(self._line)

    def _stand(self, task: Task, place: int) -> None:
        self._turns[task] = asyncio.Event()
        self._line.insert(place, task)
        self._wake_first()
        task.add_done_callback(self._leave)

    def _leave(self, task: Task) -> None:
        self._turns.pop(task).set()
        if self._line[0] is task:
            self._line.popleft()
        else:
            self._line.remove(task)
        self._wake_first()

    def _wake_first(self) -> None:
        if self._line:
            self._turns[self._line[0]].set()

    def _start(self, work: Work) -> Task:
        async def run() -> None:
            await work()

        return asyncio.get_running_loop().create_task(run())
