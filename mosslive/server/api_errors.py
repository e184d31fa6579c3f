"""What the wire is made of: ids, refusals, and the two shapes of an error.

A refusal is the client's to mend and leaves everything as it was. Knows no transport.
"""

import json
import secrets
from math import isfinite
from typing import Any, Literal, NoReturn

from mosslive.codec.flow_pages import PoolFull
from mosslive.engine import EngineBroken, EngineFull, StepFailed
from mosslive.errors import MossliveError
from mosslive.talk.job_queue import ThreadEnded

Event = dict[str, Any]
_RETRY_S = "1"
ErrorType = Literal["invalid_request_error", "server_error", "authentication_error"]


def new_id(kind: str) -> str:
    """`item_9f…`: unguessable, so one session cannot name what belongs to another."""
    return f"{kind}_{secrets.token_hex(12)}"


class ReplyFailed(MossliveError):
    """A reply was begun and could not be made, for a reason the client has no part in."""


class ApiError(MossliveError):
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


def read_json(text: str | bytes, what: str) -> Any:
    """`what`: the thing that is to be JSON. Half a surrogate pair and numbers that are none pass
    Python's reader, and then cannot be written down again."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise ApiError(f"the {what} is not JSON", "invalid_json") from None
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _no_number(digits)


def as_api_error(error: MossliveError) -> ApiError:
    """Any of our errors as the wire has it. What the client cannot mend is a `server_error`: 503
    where trying again can help, 500 where a reply failed."""
    match error:
        case ApiError():
            return error
        case EngineFull():
            code, status = f"engine_full_{error.reason}", 503
        case PoolFull():
            code, status = "codec_full", 503
        case EngineBroken() | ThreadEnded():
            code, status = "server_failed", 503
        case StepFailed() | ReplyFailed():
            code, status = "reply_failed", 500
        case _:
            return ApiError(str(error))
    return ApiError(str(error), code, kind="server_error", status=status)


def retry_headers(api_error: ApiError) -> dict[str, str]:
    """For refusals that time mends: clients that try again by themselves wait so long."""
    ours = api_error.kind == "server_error" and api_error.status in (429, 503)
    return {"retry-after": _RETRY_S} if ours else {}


def error_body(api_error: ApiError) -> dict[str, Any]:
    return {
        "type": api_error.kind,
        "code": api_error.code,
        "message": str(api_error),
        "param": api_error.param,
    }


def error_event(api_error: ApiError, client_event_id: object = None) -> Event:
    """`client_event_id` is echoed where it is a string; clients resolve waiting calls by it."""
    echoed = client_event_id if isinstance(client_event_id, str) else None
    return {"type": "error", "error": error_body(api_error) | {"event_id": echoed}}
