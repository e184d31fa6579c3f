"""Events that are almost right: each field in turn holds a wrong value."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from mosslive.server.backend import Backend
from mosslive.server.realtime.session import Client
from tests.server import bench as benches
from tests.server.bench import bench, message
from tests.server.grammar import check_types
from tests.server.rig import MANUAL, Parts, pcm, run, spoken

Path = tuple[str | int, ...]
TELEPHONE = {"format": {"type": "audio/pcmu"}, "voice": {"id": "x"}, "speed": 1.0}
EVENTS: list[dict[str, Any]] = [
    {
        "type": "session.update",
        "event_id": "e",
        "session": {
            "type": "realtime",
            "output_modalities": ["audio"],
            "instructions": "Hi.",
            "max_output_tokens": 5,
            "tools": [{"type": "function", "name": "f"}],
            "include": ["mosslive.timing"],
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24_000},
                    "transcription": {"model": "any"},
                    "noise_reduction": {"type": "near_field"},
                    "turn_detection": {
                        "type": "server_vad",
                        "threshold": 0.5,
                        "silence_duration_ms": 500,
                        "idle_timeout_ms": 6000,
                        "create_response": True,
                    },
                },
                "output": TELEPHONE,
            },
        },
    },
    {
        "type": "session.update",
        "session": {"audio": {"input": {"turn_detection": {"type": "semantic_vad"}}}},
    },
    {  # in beta names
        "type": "session.update",
        "session": {
            "modalities": ["text", "audio"],
            "voice": "alloy",
            "input_audio_format": "g711_ulaw",
            "turn_detection": {"type": "server_vad", "threshold": 0.4},
            "max_response_output_tokens": "inf",
            "temperature": 0.8,
        },
    },
    {"type": "conversation.item.create", "previous_item_id": "root", "item": message("x")},
    {
        "type": "conversation.item.create",
        "item": message("x") | {"content": [{"type": "input_audio", "audio": pcm(spoken(0.1))}]},
    },
    {
        "type": "conversation.item.create",
        "item": {"type": "function_call_output", "call_id": "c", "output": "o"},
    },
    {
        "type": "response.create",
        "response": {
            "conversation": "none",
            "output_modalities": ["text"],
            "metadata": {"a": "b"},
            "max_output_tokens": 2,
            "input": [message("x"), {"type": "item_reference", "id": "x"}],
        },
    },
    {
        "type": "conversation.item.truncate",
        "item_id": "x",
        "content_index": 0,
        "audio_end_ms": 5,
    },
    {"type": "response.cancel", "response_id": "x"},
]


def _paths(value: Any, here: Path = ()) -> Iterator[Path]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for name, one in inner:
        yield (*here, name)
        if isinstance(one, dict | list):
            yield from _paths(one, (*here, name))


WRONG: list[Any] = [None, True, -1, 1 << 70, 0.5, "", "x", [], [["x"]], {}, {"type": ["x"]}]


@pytest.fixture(scope="module")
def served(parts: Parts) -> Iterator[Backend]:
    with benches.backend(parts, max_reply_s=0.16, min_reply_s=0.16, transcripts=True) as made:
        yield made


@pytest.mark.parametrize("beta", [False, True])
@pytest.mark.parametrize("number", range(len(EVENTS)))
def test_one_wrong_field(served: Backend, number: int, beta: bool) -> None:
    """Any value of any field is accepted or refused; the session goes on, its events are valid
    JSON, and nothing leaks."""

    async def test() -> None:
        async with bench(served, Client("client", beta)) as on:
            for path in _paths(EVENTS[number]):
                for wrong in WRONG:
                    event = copy.deepcopy(EVENTS[number])
                    inner: Any = event
                    for name in path[:-1]:
                        inner = inner[name]
                    inner[path[-1]] = wrong
                    await on.session.handle(event)
            await on.send("session.update", session=MANUAL)
            await on.quiet()
            await on.send("session.update", session={"instructions": "Still here."})
            assert on.events[-1]["session"]["instructions"] == "Still here."
            json.dumps(on.events, allow_nan=False)
            check_types([e for e in on.events if e["type"] == "error"])

    run(test())
