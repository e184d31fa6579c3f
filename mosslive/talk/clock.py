"""The clock of a conversation: the current moment in seconds, and waiting for a moment.

An argument wherever time matters, so that tests run an hour of conversation in seconds.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds from a fixed moment; never decreases."""
        ...

    async def sleep_until(self, moment: float) -> None:
        """Returns at once if the moment has passed."""
        ...


class WallClock:
    def now(self) -> float:
        return time.monotonic()

    async def sleep_until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - time.monotonic()))
