"""What must hold of every session, whatever its client did: rules over its record and the log.

| rule | says |
|---|---|
| silent | a session answers, or is closed with a reason, within `ANSWER_S` |
| order | events come in the order of tests/server/grammar.py, with known ids |
| types | events have the fields of the `openai` package's types; except sessions, which show some |
| | fields as the client gave them |
| answers | every update, retrieval and deletion is answered once |
| internal | no close code 1011, no status 500, no failed part, no traceback in the log |

Pure functions. What the server holds afterwards is checked by `resources.py`.
"""

import traceback
from typing import Any

from tests.fuzz.player_http import BUSY
from tests.fuzz.record import Record
from tests.server.grammar import check, check_types

Event = dict[str, Any]
EXTRA = ("mosslive.timing",)  # events of ours that the types do not know
# Failed responses that say something about the request or the load, not about a fault of a part.
ALLOWED = (*BUSY, "engine_full_context", "session_ended")


def broken_rules(record: Record) -> list[str]:
    """What is wrong with a session; empty: nothing."""
    failures = list(record.failures)
    events = [event for event in record.events if event["type"] not in EXTRA]
    if not events:
        return failures
    beta = record.session.transport == "beta"
    try:
        check_types([event for event in events if "session" not in event], beta)
    except Exception as error:
        failures.append(f"types: {_first_lines(error)}")
    if not beta:
        try:
            check(events, whole=False)
        except Exception as error:
            failures.append(f"order: {_first_lines(error)}")
    failures += [f"internal: {text}" for text in filter(None, map(internal, events))]
    if record.answered and not record.close:
        failures += unanswered(record)
    return failures


def internal(event: Event) -> str:
    """The message of an error that is the server's fault."""
    error = event.get("error") if event["type"] == "error" else None
    if event["type"] == "response.done":
        error = ((event["response"].get("status_details") or {}).get("error")) or None
    if not error or error.get("type") == "invalid_request_error":
        return ""
    return "" if error.get("code") in ALLOWED else f"{error.get('code')}: {error.get('message')}"


ANSWERS = {
    "session.update": "session.updated",
    "conversation.item.retrieve": "conversation.item.retrieved",
    "conversation.item.delete": "conversation.item.deleted",
    "conversation.item.truncate": "conversation.item.truncated",
}


def unanswered(record: Record) -> list[str]:
    """Events of a type are answered as often as they are sent: in kind, or by an error."""
    refused = {
        event["error"].get("event_id") for event in record.events if event["type"] == "error"
    }
    found = []
    for kind, answer in ANSWERS.items():
        if answer.endswith("truncated") and record.session.transport == "webrtc":
            continue  # sent by the server itself, too
        sent = [one["event_id"] for one in record.sent if one["type"] == kind]
        answers = sum(event["type"] == answer for event in record.events)
        if answers != sum(one not in refused for one in sent):
            found.append(f"answers: {len(sent)} {kind}, {answers} {answer}")
    return found


def log_faults(lines: list[dict[str, Any]]) -> list[str]:
    """Lines of the log that no client may cause."""
    found = []
    for line in lines:
        broken = "error" in line or line.get("level") in ("error", "critical")
        if broken and not _allowed(line):
            found.append(f"log: {line['message'][:200]} {line.get('error', '')[-1500:]}")
        if line.get("code") == 1011:
            found.append(f"log: {line['message']}: 1011 {line.get('reason')}")
    return found


def _allowed(line: dict[str, Any]) -> bool:
    """A reply that does not fit now is logged as failed, and the client is told."""
    message: str = line["message"]
    return message.startswith("the conversation failed: ") and any(
        text in message for text in ("pages", "rows", "conversations", "at once")
    )


def _first_lines(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).splitlines()[:4])[:400]
    return f"{type(error).__name__}: {text} at `{where.line}` in {where.name}"
