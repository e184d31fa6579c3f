"""Ids, JSON parsing and errors of the API: as HTTP body `{"error": ...}` and as `error` event.

A request that ends with an `ApiError` has changed nothing. Pure functions and exceptions, usable on
any thread. Does not know the transport.
"""

import errno
import json
import secrets
from math import isfinite
from typing import Any, Literal, NoReturn

from mosslive.codec.flow_pages import PoolFull
from mosslive.engine import EngineBroken, EngineFull, StepFailed
from mosslive.errors import MossliveError, NotFinite
from mosslive.talk.codec_requests import ThreadEnded

Event = dict[str, Any]
_LONG_CHARS = 200_000  # parsed in a few milliseconds, whatever it contains
_MOST_ELEMENTS = 20_000
_RETRY_S = 1
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
ErrorType = Literal["invalid_request_error", "server_error", "authentication_error"]


def new_id(kind: str) -> str:
    """`item_9f…`: random, so a session cannot guess ids of another session."""
    return f"{kind}_{secrets.token_hex(12)}"


class ReplyFailed(MossliveError):
    """A reply started and failed on the server's side."""


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
        retry_s: int = _RETRY_S,
    ) -> None:
        """`retry_s`: when a client may try again, if the error is temporary."""
        self.code, self.param, self.kind, self.status = code, param, kind, status
        self.retry_s = retry_s
        super().__init__(message)


def read_json(text: str | bytes, what: str) -> Any:
    """Parses JSON; `what` names the input in the error.

    Refuses lone surrogates, NaN and infinity: Python parses them, but they cannot be sent again.
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        _check_elements(text, what)
        value = json.loads(text, parse_constant=_refuse_number, parse_float=_finite)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise ApiError(f"the {what} is not valid JSON", "invalid_json") from None
    return value


def _check_elements(text: str, what: str) -> None:
    """Raises if a long text may have too many values. To parse a million of them takes a second, in
    which the event loop would stand still. Commas in strings count too."""
    if len(text) <= _LONG_CHARS:
        return
    elements = text.count(",") + text.count("[") + text.count("{")
    if elements > _MOST_ELEMENTS:
        message = f"the {what} has {elements} values; allowed: {_MOST_ELEMENTS}"
        raise ApiError(message, "too_many_values")


def _refuse_number(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse_number(digits)


def as_api_error(error: Exception) -> ApiError:
    """Converts any error to an API error.

    Errors that the client did not cause have the type `server_error`: 503 if a retry can succeed,
    507 if the disk is full or read-only, 500 if a reply failed or the error is a bug. Only the
    messages of mosslive's own errors are meant for clients.
    """
    match error:
        case ApiError():
            return error
        case EngineFull(reason="context"):  # a retry cannot succeed
            return ApiError(str(error), "engine_full_context")
        case EngineFull():
            code, status = f"engine_full_{error.reason}", 503
        case PoolFull():
            code, status = "codec_full", 503
        case EngineBroken() | ThreadEnded():
            code, status = "server_failed", 503
        case StepFailed() | ReplyFailed() | NotFinite():
            code, status = "reply_failed", 500
        case MossliveError():
            return ApiError(str(error))
        case OSError() if error.errno in _DISK:
            message = "the server cannot write to its disk"
            return ApiError(message, "disk_failed", kind="server_error", status=507)
        case MemoryError():
            message = "the server has no memory for this; try again later"
            return ApiError(message, "out_of_memory", kind="server_error", status=503)
        case _:
            return ApiError("internal error", "internal_error", kind="server_error", status=500)
    return ApiError(str(error), code, kind="server_error", status=status)


def retry_headers(api_error: ApiError) -> dict[str, str]:
    """`Retry-After` for temporary errors; clients that retry by themselves wait that long."""
    temporary = api_error.kind == "server_error" and api_error.status in (429, 503)
    return {"retry-after": str(api_error.retry_s)} if temporary else {}


def error_body(api_error: ApiError) -> dict[str, Any]:
    return {
        "type": api_error.kind,
        "code": api_error.code,
        "message": str(api_error),
        "param": api_error.param,
    }


def error_event(api_error: ApiError, client_event_id: object = None) -> Event:
    """Echoes `client_event_id` if it is a string; clients match pending calls by it."""
    echoed = client_event_id if isinstance(client_event_id, str) else None
    return {"type": "error", "error": error_body(api_error) | {"event_id": echoed}}
