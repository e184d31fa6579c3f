"""What the wire is made of: ids, refusals, and the two shapes of an error.

A refusal is the client's to mend and leaves everything as it was. Knows no transport.
"""

import secrets
from typing import Any, Literal

from mosslive.engine import EngineFull
from mosslive.errors import MossliveError

Event = dict[str, Any]
ErrorType = Literal["invalid_request_error", "server_error", "authentication_error"]


def new_id(kind: str) -> str:
    """`item_9f…`: unguessable, so one session cannot name what belongs to another."""
    return f"{kind}_{secrets.token_hex(12)}"


class Refusal(MossliveError):
    """A request that is malformed, impossible, or beyond a limit."""

    def __init__(
        self,
        message: str,
        code: str | None = "invalid_value",
        param: str | None = None,
        *,
        kind: ErrorType = "invalid_request_error",
        status: int = 400,
    ) -> None:
        self.code, self.param, self.kind, self.status = code, param, kind, status
        super().__init__(message)


def as_refusal(error: MossliveError) -> Refusal:
    """Any of our errors as the wire tells it."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, EngineFull):
        code = f"engine_full_{error.reason}"
        return Refusal(str(error), code, kind="server_error", status=503)
    return Refusal(str(error))


def error_body(refusal: Refusal) -> dict[str, Any]:
    return {
        "type": refusal.kind,
        "code": refusal.code,
        "message": str(refusal),
        "param": refusal.param,
    }


def error_event(refusal: Refusal, client_event_id: object = None) -> Event:
    """`client_event_id` is echoed where it is a string; clients resolve waiting calls by it."""
    echoed = client_event_id if isinstance(client_event_id, str) else None
    return {"type": "error", "error": error_body(refusal) | {"event_id": echoed}}
