"""How many sessions or requests there may be: in all, and of one key. A seat is given back whatever
happens."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mosslive.server.api_errors import ApiError


class Slots:
    def __init__(
        self,
        what: str,
        most: int,
        most_per_owner: int,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`what`: sits there, "sessions" or "requests"; refusals name it. `check`: raises a refusal
        while nobody new can be served."""
        self._what, self._most, self._most_per_owner = what, most, most_per_owner
        self._check = check
        self._taken: Counter[str] = Counter()
        self.closed = False  # nobody new is let in
        self._left = asyncio.Event()  # set for a moment when somebody leaves

    def lower(self, most: int) -> None:
        """There may be so many at most from now on."""
        self._most = min(self._most, most)

    @property
    def taken(self) -> int:
        return self._taken.total()

    @contextmanager
    def take(self, owner: str) -> Iterator[None]:
        if self.closed:
            message = "the server is shutting down"
            raise ApiError(message, "shutting_down", kind="server_error", status=503)
        self._check()
        if self.taken >= self._most:
            raise self._full(f"this server holds {self._most} {self._what} at once at most")
        if self._taken[owner] >= self._most_per_owner:
            raise self._full(f"a key has {self._most_per_owner} {self._what} at once at most")
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

    def _full(self, message: str) -> ApiError:
        message, code = f"{message}; try again soon", f"too_many_{self._what}"
        return ApiError(message, code, kind="server_error", status=429)
