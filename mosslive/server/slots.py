"""Limits how many sessions or requests run at once: in total and per key.

A slot is released when its `with` block ends, whatever happens. Used on the event loop only. Does
not know what runs in a slot.
"""

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
        check: Callable[[bool], None] = lambda speaks: None,
    ) -> None:
        """`what`: "sessions" or "requests", for error messages. `check`: raises `ApiError` while
        nothing new can be served; its argument: whether it may speak."""
        self._what, self._most, self._most_per_owner = what, most, most_per_owner
        self._check = check
        # A conversation lasts minutes, a request seconds.
        self._name, self._retry_s = ("seat", 5) if what == "sessions" else ("request slot", 1)
        self._taken: Counter[str] = Counter()
        self.speaking = 0  # taken, and may produce sound
        self.closed = False  # refuse new sessions or requests
        self._released = asyncio.Event()  # set for a moment when a slot is released

    def lower(self, most: int) -> None:
        """Reduces the total limit to `most`."""
        self._most = min(self._most, most)

    @property
    def taken(self) -> int:
        return self._taken.total()

    @contextmanager
    def take(self, owner: str, speaks: bool = True) -> Iterator[None]:
        """Holds one slot. `speaks`: it may produce sound. Raises `ApiError` if none is free or the
        server takes nothing new."""
        if self.closed:
            message = "the server is shutting down"
            raise ApiError(message, "shutting_down", kind="server_error", status=503)
        self._check(speaks)
        if self.taken >= self._most:
            raise self._full(self._most, "")
        if self._taken[owner] >= self._most_per_owner:
            raise self._full(self._most_per_owner, " of this key")
        self._taken[owner] += 1
        self.speaking += speaks
        try:
            yield
        finally:
            self._taken[owner] -= 1
            self.speaking -= speaks
            if not self._taken[owner]:
                del self._taken[owner]
            self._released.set()
            self._released.clear()

    async def emptied(self) -> None:
        """Waits until no slot is taken."""
        while self.taken:
            await self._released.wait()

    def _full(self, count: int, whose: str) -> ApiError:
        name = f"{self._name}s{whose} are" if count > 1 else f"{self._name}{whose} is"
        taken = f"All {count} {name}" if count > 1 else f"The only {name}"
        message, code = f"{taken} taken; try again in {self._retry_s} s.", f"too_many_{self._what}"
        return ApiError(message, code, kind="server_error", status=429, retry_s=self._retry_s)
