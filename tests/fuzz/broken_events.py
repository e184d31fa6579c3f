"""Invalid client events: valid ones with one thing wrong, and frames that are no event at all.

Pure functions of a random generator; knows no transport.
"""

import copy
import json
import random
from typing import Any

from tests.fuzz.client_events import Event, client_event
from tests.fuzz.script import Step

WRONG: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, 1e308, 2**70, -(2**63), "", "x", "\u0000", "auto"),
    *([], [None], [[]], {}, {"type": None}, ["audio", "text", "audio"], "$text:30000", "$bytes:7"),
    *("$item:0", "$response:0", {"a": {"b": {"c": [1, 2, {"d": None}]}}}, "\U0001f600" * 40),
)
FRAMES = (
    *("", " ", "null", "[]", "{}", "0", '"text"', "{", "}", '{"type": 1}', '{"type": "x" * 9}'),
    *('{"type": "response.create"', '{"type": "nothing.known"}', '{"type": ""}', "\ufeff{}"),
    *('{"type": "response.cancel", "type": "session.update"}', '{"type": "\\ud800"}'),
    *('{"type": "response.create", "event_id": NaN}', '{"a": Infinity}', "[" * 5000, '{"a":' * 800),
    *('{"type": "input_audio_buffer.append", "audio": "%%%%"}', '{"type": "error"}'),
    *('{"type": "input_audio_buffer.append", "audio": "AAA"}', '{"type": "session.created"}'),
    '{"type": "session.update", "session": {"max_output_tokens": ' + "9" * 5000 + "}}",
    '{"type": "conversation.item.create", "item": {"id": "\\udfff", "type": "message"}}',
)
Path = tuple[str | int, ...]


def broken_step(chance: random.Random) -> Step:
    what = chance.random()
    if what < 0.7:
        return "send", broken_event(chance)
    if what < 0.93:
        return "raw", chance.choice(FRAMES)
    if what < 0.96:
        return "raw", json.dumps({"type": "response.create", "x": "y" * 100_000})[: 1 << 16]
    return "bytes", chance.choice((0, 1, 1000))


def broken_event(chance: random.Random) -> Event:
    """A valid event in which one value is wrong, missing, or where it does not belong."""
    event = copy.deepcopy(client_event(chance))
    path = chance.choice(list(paths(event)))
    parent: Any = event
    for name in path[:-1]:
        parent = parent[name]
    match chance.randrange(4):
        case 0:
            del parent[path[-1]]
        case 1 if isinstance(parent, dict):
            parent[f"x_{chance.randrange(9)}"] = parent.pop(path[-1])
        case _:
            parent[path[-1]] = copy.deepcopy(chance.choice(WRONG))
    return event


def paths(value: Any, here: Path = ()) -> list[Path]:
    """The way to every value inside."""
    if isinstance(value, dict):
        inside: list[tuple[str | int, Any]] = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value))
    else:
        return [here]
    found = [here] if here else []
    for name, each in inside:
        found += paths(each, (*here, name))
    return found
