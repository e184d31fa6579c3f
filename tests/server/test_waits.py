"""Waits of a session: no order of valid events stops it, and it ends when its client leaves."""

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import connect

from mosslive.server import http_config
from mosslive.server.realtime.client_events.input_audio_buffer import clear_input
from mosslive.server.realtime.handlers import HANDLERS
from mosslive.server.realtime.session import RealtimeSession
from tests.server.bench import message
from tests.server.rig import Event, Parts, Peer, Served, pcm, run, serving, spoken, turn

ANSWER_S = 5.0  # for a session that does not wait for anything of its own


async def answers(peer: Peer) -> None:
    """The session still answers: `session.updated`, or an error."""
    await peer.send("session.update", event_id="last", session={"tracing": "last"})
    async with asyncio.timeout(ANSWER_S):
        while True:
            event = await peer.next()
            if event["type"] == "session.updated" and event["session"]["tracing"] == "last":
                return
            if event["type"] == "error" and event["error"]["event_id"] == "last":
                return


async def left(served: Served, tasks: int) -> None:
    """The client has left: nothing of its session is kept."""
    async with asyncio.timeout(ANSWER_S):
        await served.quiet()
        while len(asyncio.all_tasks()) > tasks:
            await asyncio.sleep(0.01)


def test_cancel_of_a_reply_that_was_not_announced(parts: Parts) -> None:
    """`response.cancel` after a commit, speech and an update never waits for an event that its own
    session has not processed yet, and the session ends with its client."""

    async def test() -> None:
        async with serving(parts) as served:
            tasks = len(asyncio.all_tasks())
            async with served.session() as peer:
                await peer.send("input_audio_buffer.append", audio=pcm(spoken(1.0)))
                await peer.send("input_audio_buffer.commit")
                await peer.send("input_audio_buffer.append", audio=pcm(turn(1.0, 1)))
                await peer.send("session.update", session={"tracing": "auto"})
                await peer.send("response.cancel")
                await answers(peer)
                created = [
                    e["response"]["id"] for e in peer.events if e["type"] == "response.created"
                ]
                done = [e["response"]["id"] for e in peer.events if e["type"] == "response.done"]
                assert created == done
            await left(served, tasks)

    run(test())


async def listen(peer: Peer, seconds: float) -> None:
    """Reads events, items among them."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                await peer.next()


async def send_any(peer: Peer, chance: random.Random) -> None:
    """One valid event, or one that is refused because it comes out of turn."""
    items = [e["item"]["id"] for e in peer.events if e["type"] == "conversation.item.added"]
    item = chance.choice(items) if items else "none"
    detection = chance.choice([None, {"type": "server_vad"}, {"type": "semantic_vad"}])
    update: Any = {"audio": {"input": {"turn_detection": detection}}}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("input_audio_buffer.append", {"audio": pcm(spoken(0.5, chance.randrange(4)))}),
        ("input_audio_buffer.append", {"audio": pcm(turn(0.4, chance.randrange(4)))}),
        ("input_audio_buffer.commit", {}),
        ("input_audio_buffer.clear", {}),
        ("session.update", {"session": {"tracing": "auto"}}),
        ("session.update", {"session": {"instructions": f"Be brief {chance.randrange(9)}."}}),
        ("session.update", {"session": update}),
        ("response.create", {}),
        ("response.create", {"response": {"instructions": "Sing."}}),
        ("response.create", {"response": {"conversation": "none"}}),
        ("response.cancel", {}),
        ("conversation.item.create", {"item": message("Hello")}),
        ("conversation.item.create", {"item": message("First"), "previous_item_id": "root"}),
        ("conversation.item.delete", {"item_id": item}),
        ("conversation.item.truncate", {"item_id": item, "content_index": 0, "audio_end_ms": 100}),
    ]
    kind, fields = chance.choice(kinds)
    await peer.send(kind, **fields)


@pytest.mark.parametrize("first_seed", [0, 4])
def test_valid_events_in_any_order(parts: Parts, first_seed: int) -> None:
    """Whatever valid events come in whatever order, a session answers the next one within seconds,
    and gives back all it held when its client leaves."""

    async def test() -> None:
        async with serving(parts) as served:
            tasks = len(asyncio.all_tasks())
            for seed in range(first_seed, first_seed + 4):
                chance = random.Random(seed)
                async with served.session() as peer:
                    for _ in range(20):
                        await send_any(peer, chance)
                        if chance.random() < 0.3:
                            await listen(peer, chance.random() / 20)
                    await answers(peer)
                await left(served, tasks)

    run(test())


def test_a_client_whose_events_wait_is_alive(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that takes longer than a ping's timeout for the events of its client is not closed:
    the answer to the ping waits behind the events, which nobody has read yet."""
    ping_s, events = 0.2, 12

    async def slowly(session: RealtimeSession, event: Event) -> None:
        await asyncio.sleep(ping_s / 2)
        clear_input(session)

    monkeypatch.setattr(http_config, "_PING_S", ping_s)
    monkeypatch.setitem(HANDLERS, "input_audio_buffer.clear", slowly)

    async def test() -> None:
        async with serving(parts) as served, served.session(ping_interval=None) as peer:
            for _ in range(events):
                await peer.send("input_audio_buffer.clear")
            for _ in range(events):
                await peer.until("input_audio_buffer.cleared")

    run(test())


def test_a_client_that_vanishes_while_the_session_sends(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that answers no ping has left, even if much is still to be sent to it: its session
    ends at once, not when a write times out, and nothing counts as failed."""
    monkeypatch.setattr(http_config, "_PING_S", 0.2)
    large = {"tracing": {"workflow_name": "x" * 1_000_000}}  # shown in every answer
    limits: dict[str, Any] = {"send_queue_bytes": 1 << 28, "send_timeout_s": 600.0}

    async def test() -> None:
        async with serving(parts, **limits) as served:
            socket = await connect(served.ws, max_size=None, ping_interval=None)
            peer = Peer(socket)
            await peer.send("session.update", session=large)
            await peer.until("session.updated")
            socket.transport.pause_reading()
            for _ in range(40):
                await peer.send("session.update", session={})
            async with asyncio.timeout(4 * ANSWER_S):
                await served.server_state.slots.emptied()
            socket.transport.abort()

    run(test())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
