"""The telephone line between a caller and a server: what both kinds of lines have in common.

A line carries packets of sound to the other end and calls its `Ear` with what comes back, on the
event loop. Knows neither the plan of a call nor how gaps are counted.
"""

from dataclasses import dataclass
from typing import Protocol

from mosslive.errors import MossliveError


class CallRefused(MossliveError):
    """The server refused the call because it is busy."""

    def __init__(self, message: str, retry_s: float) -> None:
        self.retry_s = retry_s  # when to call again
        super().__init__(message)


class CallFailed(MossliveError):
    """The call could not be made, or broke."""


@dataclass(frozen=True)
class TurnEnds:
    """How a turn of the user ends: by voice activity detection, or committed."""

    detected: bool
    silence_ms: int = 500  # that ends a turn, if detected

    @property
    def waited_s(self) -> float:
        """The silence that passes before the server can know that a turn has ended."""
        return self.silence_ms / 1000 if self.detected else 0.0


class Ear(Protocol):
    """Replies have names that are unique in a call."""

    def begun(self, reply: str) -> None: ...

    def sound(self, reply: str, samples: int, *, good: bool = True) -> None:
        """`good`: finite and, where it was decoded, sound."""

    def ended(self, reply: str, status: str, *, codes: int | None = None, fault: str = "") -> None:
        """`status`: completed, cancelled, refused or failed. `codes`: of the reply, if known."""

    def dropped(self, reason: str) -> None:
        """The line is dead."""


class Line(Protocol):
    async def open(self, ear: Ear) -> None:
        """Raises `CallRefused` or `CallFailed`."""

    async def limit(self, codes: int) -> None:
        """Limits the replies that follow."""

    async def send(self, question: int, packet: int) -> None: ...

    async def send_silence(self) -> None: ...

    async def commit(self) -> None:
        """Ends the turn here and asks for the reply."""

    async def interrupt(self, reply: str, active: bool, heard_s: float) -> None:
        """The caller stops listening to a reply. `active`: it has not ended."""

    async def close(self) -> None: ...
