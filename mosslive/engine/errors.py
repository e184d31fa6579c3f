"""What the served engine says instead of doing the work: full, busy, failed, or broken."""

from typing import Literal

from mosslive.errors import MossliveError

Reason = Literal["pages", "deadlines", "conversations", "context", "closed"]


class EngineFull(MossliveError):
    """New work is refused and nothing was changed; the conversation stays usable.

    `reason`: "pages" (no room for the rows), "deadlines" (speech would stutter), "conversations"
    (too many are open), "context" (no positions left), "closed" (the conversation or engine is).
    """

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason: Reason = reason
        super().__init__(message)


class Busy(MossliveError):
    """The call does not fit what the conversation is doing; the message says what to do first."""


class StepFailed(MossliveError):
    """The model could not be run for this conversation; the cause says why. Others go on."""


def step_failed(error: Exception) -> MossliveError:
    """An error as its caller should see it."""
    if isinstance(error, MossliveError):
        return error
    failed = StepFailed(f"the step failed: {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


class EngineBroken(MossliveError):
    """The device or the engine itself failed for good: every open reply ended with this. A stepper
    raises it to say that no later call can succeed."""
