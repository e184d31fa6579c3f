"""How many sessions there may be: in all, and of one key. A seat is given back whatever happens."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from mosslive.server.wire import Refusal


class Seats:
    def __init__(self, most: int, most_per_owner: int) -> None:
        self._most, self._most_per_owner = most, most_per_owner
        self._taken: Counter[str] = Counter()
        self.closed = False  # nobody new is let in
        self._left = asyncio.Event()  # set for a moment when somebody leaves

    @property
    def taken(self) -> int:
        return self._taken.total()

    @contextmanager
    def take(self, owner: str) -> Iterator[None]:
        if self.closed:
            raise _full("the server is shutting down", "shutting_down", 503)
        if self.taken >= self._most:
            raise _full(f"{self._most} sessions are open, which is the most", "too_many_sessions")
        if self._taken[owner] >= self._most_per_owner:
            most = self._most_per_owner
            raise _full(f"this key has {most} sessions, which is the most", "too_many_sessions")
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]
            self._left.set()
            self._left.clear()

    async def emptied(self) -> None:
        """Until everybody has left."""
        while self.taken:
            await self._left.wait()


def _full(message: str, code: str, status: int = 429) -> Refusal:
    return Refusal(message, code, kind="server_error", status=status)
