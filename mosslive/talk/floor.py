"""Who may change the dialogue: one task at a time, in the order in which they asked.

A task that is cancelled before its turn simply leaves the line. Knows nothing of what tasks do.
"""

import asyncio
from collections.abc import Awaitable, Callable

Work = Callable[[], Awaitable[None]]


class Floor:
    def __init__(self) -> None:
        self._line: set[asyncio.Task[None]] = set()  # asked, and not done
        self._beside: set[asyncio.Task[None]] = set()

    def take(self, work: Work) -> "asyncio.Task[None]":
        """Runs it when all who asked before are done."""
        before = set(self._line)

        async def in_turn() -> None:
            if before:
                await asyncio.wait(before)
            await work()

        return self._start(in_turn, self._line)

    def beside(self, work: Work) -> "asyncio.Task[None]":
        """Runs it now: work that does not touch the dialogue, or one of its own."""
        return self._start(work, self._beside)

    def join(self, task: "asyncio.Task[None]") -> None:
        """What was begun beside has the floor now; who asks from here on waits for it."""
        if not task.done():
            self._beside.discard(task)
            self._line.add(task)
            task.add_done_callback(self._line.discard)

    @property
    def tasks(self) -> int:
        return len(self._line | self._beside)

    async def close(self) -> None:
        tasks = self._line | self._beside
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, work: Work, where: "set[asyncio.Task[None]]") -> "asyncio.Task[None]":
        async def run() -> None:
            await work()

        task = asyncio.get_running_loop().create_task(run())
        where.add(task)
        task.add_done_callback(where.discard)
        return task
