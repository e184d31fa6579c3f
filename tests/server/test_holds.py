"""One client and the event loop: nothing it may send keeps the others waiting."""

import asyncio
import gc
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.sync.client import connect

from mosslive.rows import TextTokenizer
from tests.server.bench import message
from tests.server.rig import MANUAL, Event, Parts, Served, pcm, run, serving, spoken

ITEMS, RESTORED = 200, 430  # as many as the nano model's context holds, twice and once
MANUAL_UPDATE = {"type": "session.update", "session": MANUAL}
# Of one pass of the event loop, in seconds that its thread computes: other processes do not count.
# The rule is 20 ms; the passes of these tests take 3 to 5 ms. Three times the rule is allowed, for
# slow cores and cold caches: an event loop that lets one client go on takes 150 ms and more.
LONGEST_S = 0.06


class Passes:
    longest_s = 0.0


@contextmanager
def passes_measured() -> Iterator[Passes]:
    """How long the passes of the running event loop take."""
    loop: Any = asyncio.get_running_loop()
    passes, real = Passes(), loop._run_once

    def run_once() -> None:
        began = time.thread_time()
        real()
        passes.longest_s = max(passes.longest_s, time.thread_time() - began)

    gc.collect()
    gc.freeze()  # a collection of all that tests have made is no work of the server
    loop._run_once = run_once
    try:
        yield passes
    finally:
        loop._run_once = real
        gc.unfreeze()


def flood(served: Served, events: list[Event]) -> int:
    """Sends all events at once and creates a response, which comes after them. Returns the number
    of items when it is done, without its own. Runs on a thread of its own."""
    items: int = -1
    last = {"output_modalities": ["text"], "max_output_tokens": 1}
    with connect(served.ws, max_size=None) as socket:
        for sent in [MANUAL_UPDATE, *events, {"type": "response.create", "response": last}]:
            socket.send(json.dumps(sent))
        while True:
            event: Event = json.loads(socket.recv())
            items += event["type"] == "conversation.item.done"
            items -= event["type"] == "conversation.item.deleted"
            if event["type"] in ("response.done", "error"):
                assert event["type"] == "response.done", event
                assert event["response"]["status"] == "incomplete", event
                return items


def create(number: int) -> Event:
    item = message("Hello", "assistant" if number % 2 else "user") | {"id": f"item_{number}"}
    return {"type": "conversation.item.create", "item": item}


def test_a_thousand_items_behind_sounds(parts: Parts) -> None:
    """Items that are created and deleted while sounds are encoded hold the event loop no longer
    than a few items do."""
    sound = {"type": "input_audio", "audio": pcm(spoken(1.0))}
    item = {"type": "message", "role": "user", "content": [sound]}
    sounds = [{"type": "conversation.item.create", "item": item}] * 8
    creates = [create(number) for number in range(ITEMS)]
    deletes = [
        {"type": "conversation.item.delete", "item_id": f"item_{number}"} for number in range(ITEMS)
    ]

    async def test() -> None:
        async with serving(parts) as served:
            await asyncio.to_thread(flood, served, [create(0)])
            with passes_measured() as passes:
                items = await asyncio.to_thread(flood, served, [*sounds, *creates, *deletes])
                assert items == 8
            assert passes.longest_s < LONGEST_S

    run(test())


def test_a_conversation_is_restored(parts: Parts) -> None:
    """A client that restores a long conversation does not hold the event loop, and turns stand in
    the order of their items."""

    async def test() -> None:
        async with serving(parts) as served:
            await asyncio.to_thread(flood, served, [create(0)])
            with passes_measured() as passes:
                items = await asyncio.to_thread(flood, served, [create(n) for n in range(RESTORED)])
                assert items == RESTORED
            assert passes.longest_s < LONGEST_S

    run(test())


def test_a_long_text_is_tokenised_on_another_thread(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long instructions and items are tokenised on other threads than that of the event loop."""
    real, here = TextTokenizer.encode, threading.get_ident()
    on_other_threads: list[bool] = []

    def encode(self: TextTokenizer, text: str, control: bool = False) -> list[int]:
        if len(text) > 1000:
            on_other_threads.append(threading.get_ident() != here)
        return real(self, text, control)

    monkeypatch.setattr(TextTokenizer, "encode", encode)
    events: list[Event] = [
        {"type": "session.update", "session": {"instructions": "word " * 210}},
        {"type": "conversation.item.create", "item": message("word " * 220)},
    ]

    async def test() -> None:
        # Few sessions, so that each may have the rows of a long text.
        async with serving(parts, max_sessions=1, max_requests=1) as served:
            assert await asyncio.to_thread(flood, served, events) == 1
            assert on_other_threads == [True, True]

    run(test())
