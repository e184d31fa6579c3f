"""Time as a conversation sees it: a moment in seconds, and waiting for one.

Handed in wherever time matters, so that tests run an hour in seconds and never sleep.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds from some fixed moment; never runs backwards."""
        ...

    async def sleep_until(self, moment: float) -> None:
        """Returns at once if it has passed."""
        ...


class WallClock:
    def now(self) -> float:
        return time.monotonic()

    async def sleep_until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - time.monotonic()))
