"""What a run of the fuzzer consists of: sessions with steps, plain data that prints as Python.

Texts that begin with `$` stand for values that are long, or known only while a session runs:

| text | stands for |
|---|---|
| `$item:N`, `$response:N` | an id that the server has sent, counted from the latest; any if none |
| `$loud:MS:SEED`, `$turn:MS:SEED`, `$silence:MS` | base64 of speech; with a pause; of zeros |
| `$bytes:N`, `$file:KIND` | base64 of so many bytes; of a recording |
| `$text:N` | a text of so many characters |

Does not know transports. Pure data and functions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.recordings import value_of

# (kind, value):
#   ("send", event)      a client event, with `$` texts
#   ("raw", text)        a text frame as it is; ("bytes", n): a binary frame
#   ("wait", seconds)    nothing is sent meanwhile
#   ("until", type)      until the next server event of this type, 0.3 s at most
#   ("deaf", seconds)    nothing is read meanwhile
#   ("speak", "$turn…")  into the microphone; WebRTC only
#   ("request", {...})   one HTTP request; HTTP only
#   ("leave", way)       the last: "close", "abort"; without it the session is asked whether it
#                        still answers
Step = tuple[str, Any]


@dataclass(frozen=True)
class Session:
    transport: str  # websocket, beta, webrtc, http
    delay_s: float = 0.0
    steps: tuple[Step, ...] = field(default=())


Run = list[Session]
Lookup = Callable[[str, int], str]


def events_of(run: Run) -> int:
    """How many events, frames and requests the clients send."""
    sent = ("send", "raw", "bytes", "request", "speak")
    return sum(kind in sent for session in run for kind, _ in session.steps)


def resolve(value: Any, ids: Lookup) -> Any:
    """The value with its `$` texts replaced. `ids`: ("item" or "response", N) → an id."""
    if isinstance(value, dict):
        return {name: resolve(each, ids) for name, each in value.items()}
    if isinstance(value, list):
        return [resolve(each, ids) for each in value]
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    name, _, rest = value[1:].partition(":")
    if name in ("item", "response"):
        return ids(name, int(rest))
    return value_of(value)
