"""Errors of the served engine: full, busy, step failed, engine broken."""

from typing import Literal

from mosslive.engine.device_errors import raise_if_lost
from mosslive.errors import MossliveError

Reason = Literal["pages", "deadlines", "conversations", "context", "closed"]


class EngineFull(MossliveError):
    """The engine does not admit this work. Nothing has changed; the conversation stays usable.

    `reason`: "pages" (too few free pages for the rows), "deadlines" (speech would underrun),
    "conversations" (too many are open), "context" (no positions left), "closed" (the conversation
    or the engine is closed).
    """

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason: Reason = reason
        super().__init__(message)


class Busy(MossliveError):
    """The conversation has an active reply, or the reply has another reader. The message says what
    to do first."""


class StepFailed(MossliveError):
    """The model could not run for this conversation; `__cause__` is the reason. Other conversations
    continue."""


def step_failed(error: Exception) -> MossliveError:
    """Returns the error that the caller sees: a `MossliveError` as it is, any other wrapped. Raises
    `DeviceLost` if no later step can succeed."""
    raise_if_lost(error)
    if isinstance(error, MossliveError):
        return error
    failed = StepFailed(f"the step failed: {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


class EngineBroken(MossliveError):
    """The device or the engine failed permanently, and every active reply ended with this error. A
    stepper raises it if no later call can succeed."""
