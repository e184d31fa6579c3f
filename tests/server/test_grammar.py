"""Rules of the protocol, over random conversations and random input."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mosslive.server.backend import Backend
from mosslive.server.realtime.handlers import HANDLERS
from mosslive.server.realtime.session import Client
from tests.server import bench as benches
from tests.server.bench import Bench, bench
from tests.server.grammar import check, check_types
from tests.server.rig import MANUAL, RATE, Parts, pcm, run, spoken, turn

VAD = {"type": "realtime", "audio": {"input": {"turn_detection": {"type": "server_vad"}}}}
MOST = hypothesis_settings(max_examples=25, deadline=None, derandomize=True, database=None)


@pytest.fixture(scope="module")
def served(parts: Parts) -> Iterator[Backend]:
    with benches.backend(parts, max_reply_s=0.8, min_reply_s=1.6) as made:
        yield made


def _text(words: str, **more: Any) -> dict[str, Any]:
    part = {"type": "input_text", "text": words}
    return {"item": {"type": "message", "role": "user", "content": [part]}, **more}


async def _act(on: Bench, action: str, pick: int) -> None:
    """One action of a client, valid or not."""
    items = [item.id for item in on.session.items]
    one = items[pick % len(items)] if items else "item_nowhere"
    match action:
        case "turn":
            await on.send("input_audio_buffer.append", audio=pcm(turn(0.3, pick)))
        case "speech":
            await on.send("input_audio_buffer.append", audio=pcm(spoken(0.3, pick)))
        case "silence":
            wave = np.zeros(RATE // 5, np.float32)
            await on.send("input_audio_buffer.append", audio=pcm(wave))
        case "commit" | "clear":
            await on.send(f"input_audio_buffer.{action}")
        case "respond":
            await on.send("response.create")
        case "respond in writing":
            await on.send("response.create", response={"output_modalities": ["text"]})
        case "respond out of band":
            out_of_band = {"conversation": "none", "metadata": {"a": "b"}}
            await on.send("response.create", response=out_of_band)
        case "respond to this":
            await on.send("response.create", response={"input": [_text("So?")["item"]]})
        case "respond so":
            await on.send("response.create", response={"instructions": f"Say {pick}."})
        case "cancel":
            await on.send("response.cancel")
        case "write":
            await on.send("conversation.item.create", **_text(f"words {pick}"))
        case "write first":
            await on.send("conversation.item.create", **_text("first", previous_item_id="root"))
        case "write between":
            await on.send("conversation.item.create", **_text("then", previous_item_id=one))
        case "truncate":
            end = {"content_index": 0, "audio_end_ms": 100 * pick}
            await on.send("conversation.item.truncate", item_id=one, **end)
        case "delete" | "retrieve":
            await on.send(f"conversation.item.{action}", item_id=one)
        case "manual" | "vad":
            await on.send("session.update", session=MANUAL if action == "manual" else VAD)
        case "instruct":
            session = {"type": "realtime", "instructions": f"Be {pick}."}
            await on.send("session.update", session=session)
        case "wait":
            await on.quiet()
        case "breathe":
            for _ in range(20 * pick):
                await asyncio.sleep(0)


ACTIONS = [
    "turn",
    "speech",
    "silence",
    "commit",
    "clear",
    "respond",
    "respond in writing",
    "respond out of band",
    "respond to this",
    "respond so",
    "cancel",
    "write",
    "write first",
    "write between",
    "truncate",
    "delete",
    "retrieve",
    "manual",
    "vad",
    "instruct",
    "wait",
    "breathe",
]


@MOST
@given(script=st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 9)), max_size=14))
def test_random_conversations_obey_the_grammar(
    served: Backend, script: list[tuple[str, int]]
) -> None:
    """Whatever a client does at any time, events come in the documented order with every field that
    the SDK's types require, and all pages are free afterwards."""

    async def test() -> None:
        async with bench(served) as on:
            for action, pick in script:
                await _act(on, action, pick)
            await on.send("input_audio_buffer.clear")
            await on.quiet()
            check_types(on.events)
            check(on.events)

    run(test())


def test_beta_events_have_beta_types(served: Backend) -> None:
    """With the beta header every event validates against the SDK's beta types."""

    async def test() -> None:
        async with bench(served, Client("client", beta=True, model="gpt-realtime")) as on:
            for action in (
                "turn",
                "wait",
                "write",
                "respond out of band",
                "wait",
                "cancel",
                "retrieve",
            ):
                await _act(on, action, 1)
            await on.quiet()
            check_types(on.events, beta=True)
            kinds = {event["type"] for event in on.events}
            assert "response.audio.delta" in kinds
            assert "conversation.item.created" in kinds
            assert not any(
                "output_audio." in kind or kind.endswith("item.added")
                for kind in kinds
                if kind != "response.output_item.added"
            )

    run(test())


NAMES = st.sampled_from(
    [
        "type",
        "session",
        "audio",
        "input",
        "output",
        "format",
        "turn_detection",
        "threshold",
        "voice",
        "speed",
        "item",
        "item_id",
        "id",
        "role",
        "content",
        "text",
        "response",
        "conversation",
        "instructions",
        "output_modalities",
        "max_output_tokens",
        "metadata",
        "previous_item_id",
        "audio_end_ms",
        "content_index",
        "response_id",
        "event_id",
        "tools",
        "modalities",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


@hypothesis_settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    rubbish=st.lists(
        JSON
        | st.builds(
            lambda kind, fields: fields | {"type": kind},
            st.sampled_from(sorted(HANDLERS)),
            st.dictionaries(NAMES, JSON, max_size=5),
        ),
        min_size=1,
        max_size=6,
    ),
    beta=st.booleans(),
)
def test_rubbish_is_answered_and_harms_nothing(
    served: Backend, rubbish: list[Any], beta: bool
) -> None:
    """Fuzzed events never end the session, never raise and leak nothing."""

    async def test() -> None:
        async with bench(served, Client("client", beta)) as on:
            for event in rubbish:
                await on.session.handle(event)
            await on.quiet()
            before = len(on.of("session.updated"))
            await on.send("session.update", session={"instructions": "Hi."})
            assert len(on.of("session.updated")) == before + 1
            json.dumps(on.events, allow_nan=True)
            check_types([e for e in on.events if e["type"] == "error"])

    run(test())


def test_events_after_the_end(served: Backend) -> None:
    """Events that arrive after a session has closed change nothing and raise nothing."""

    async def test() -> None:
        async with bench(served) as on:
            await _act(on, "turn", 1)
            await on.until("response.created")
            await on.session.close()
            sent = len(on.events)
            for action in ACTIONS:
                if action != "wait":
                    await _act(on, action, 1)
            assert len(on.events) == sent

    run(test())
