"""Plays the requests of a session over HTTP, one after the other.

Writes into the record whatever is wrong with a response. Runs on the event loop of the fuzzer.
"""

from typing import Any

import httpx

from tests.fuzz.record import ANSWER_S, Record
from tests.fuzz.recordings import recording
from tests.fuzz.script import resolve
from tests.server.processes import Process

# Codes of refusals that are no fault of the client, and say when to come again.
BUSY = (
    *("too_many_sessions", "too_many_requests", "overloaded", "codec_full"),
    *("engine_full_pages", "engine_full_deadlines", "engine_full_conversations"),
)


async def play_http(record: Record, served: Process) -> None:
    base = f"http://127.0.0.1:{served.port}"
    async with httpx.AsyncClient(base_url=base, timeout=3 * ANSWER_S) as http:
        for _, request in record.session.steps:
            try:
                await _request(record, http, request)
            except httpx.HTTPError as error:
                record.fail(f"http: {request['method']} {request['path']}: {error!r}")


async def _request(record: Record, http: httpx.AsyncClient, request: dict[str, Any]) -> None:
    options: dict[str, Any] = {}
    if "json" in request:
        options["json"] = resolve(request["json"], lambda kind, number: kind)
    elif "body" in request:
        kind = {"content-type": "application/json"}
        options |= {"content": request["body"].encode(), "headers": kind}
    if "form" in request:
        options["files"] = {name: (None, value) for name, value in request["form"].items()}
    if "file" in request:
        options.setdefault("files", {})["file"] = ("x", recording(request["file"]))
    async with http.stream(request["method"], request["path"], **options) as answer:
        most, read = request.get("read"), b""
        async for piece in answer.aiter_raw():
            read += piece
            if most is not None and len(read) >= most:
                break
        record.responses += 1
        if answer.status_code >= 400 and most is None:
            whole = httpx.Response(
                answer.status_code, content=read, headers=dict(answer.headers), request=None
            )
            if request["method"] != "HEAD" and request["path"].startswith("/v1"):
                check_refusal(record, whole)
        if answer.status_code == 500:
            record.fail(f"http 500: {request['method']} {request['path']}: {read[:300]!r}")


def check_refusal(record: Record, answer: httpx.Response) -> None:
    """A refusal has the documented shape. The server's own refusals say when to come again."""
    try:
        error = answer.json()["error"]
        record.refused = str(error["code"])
        known = bool(error["message"]) and {"type", "param"} <= set(error)
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        record.fail(f"http {answer.status_code}: no error document: {answer.content[:300]!r}")
    elif answer.status_code >= 500 or answer.status_code == 429:
        again = "retry-after" in answer.headers
        if answer.status_code == 500 or record.refused not in BUSY or not again:
            record.fail(f"http {answer.status_code}: {record.refused}: {error['message']}")
