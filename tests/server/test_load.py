"""Many sessions that open, talk and vanish; afterwards all counts are as before."""

import asyncio
import ctypes
import gc
import json
import os
import random
import statistics
import sys
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from mosslive.server import http_config
from tests.server.rig import MANUAL, Parts, Peer, Served, pcm, run, serving, spoken, turn, until

pytestmark = pytest.mark.alone

LONG = pytest.mark.skipif(
    os.environ.get("LONG_TESTS") != "1", reason="takes minutes; LONG_TESTS=1 runs it"
)


def handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


WAYS = ["close", "vanish", "in mid-speech", "in mid-reply", "unread", "half-open"]


@pytest.fixture(autouse=True)
def quick_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pings, 20 s apart in use, detect a connection whose peer is dead."""
    monkeypatch.setattr(http_config, "_PING_S", 1.0)


async def visit(served: Served, chance: random.Random) -> ClientConnection | None:
    """One client that waits, talks and leaves in one of several ways. Returns the socket if it was
    left half-open: no one reads it or answers its pings any more."""
    socket = await connect(served.ws, max_size=None)
    peer = Peer(socket)
    leaving = chance.choice(WAYS)
    try:
        await peer.until("session.created")
        if chance.random() < 0.5:
            await peer.send("session.update", session=MANUAL)
            await peer.say(spoken(0.2))
            await peer.send("input_audio_buffer.commit")
            await peer.send("response.create")
        else:
            await peer.say(turn(0.3, chance.randrange(9)))
        if leaving in ("close", "vanish"):
            await peer.until("response.done")
        elif leaving == "in mid-reply":
            await peer.until("response.created")
        elif leaving == "in mid-speech":
            await peer.send("input_audio_buffer.append", audio=pcm(spoken(0.2)))
    except ConnectionClosed:
        pass
    if leaving == "half-open":
        socket.transport.pause_reading()
        return socket
    if leaving == "close":
        await socket.close()
    else:
        socket.transport.abort()  # without a closing handshake
        await socket.wait_closed()
    return None


async def crowd(served: Served, visitors: int, at_once: int, seed: int) -> None:
    chance = random.Random(seed)
    room = asyncio.Semaphore(at_once)
    half_open: list[ClientConnection] = []

    async def come(number: int) -> None:
        async with room:
            if left := await visit(served, random.Random(number)):
                half_open.append(left)

    numbers = [chance.randrange(1 << 30) for _ in range(visitors)]
    async with asyncio.TaskGroup() as tasks:
        for number in numbers:
            tasks.create_task(come(number))
    await until(lambda: served.server_state.slots.taken == 0)  # the server detects dead connections
    for socket in half_open:
        socket.transport.abort()
        await socket.wait_closed()


async def back_to_normal(served: Served, before_handles: int, before_tasks: int) -> None:
    await served.quiet()
    gc.collect()
    await until(lambda: len(asyncio.all_tasks()) <= before_tasks)
    await until(lambda: handles() <= before_handles)
    live = served.server_state.metrics.sessions.labels("websocket")
    assert live._value.get() == 0
    assert served.server_state.slots.taken == 0


def test_twenty_sessions_come_and_vanish(parts: Parts) -> None:
    """After twenty sessions the counts of sessions, tasks, pages and file handles are as before."""

    async def test() -> None:
        async with serving(parts, kv_rows=32_768, max_reply_s=0.8) as served:
            await crowd(served, 2, 2, seed=1)  # so that lazy imports do not count
            await served.quiet()
            before = handles(), len(asyncio.all_tasks())
            await crowd(served, 20, 20, seed=2)
            await back_to_normal(served, *before)

    run(test())


_ASKS = """
import asyncio, json, sys
from websockets.asyncio.client import connect

async def main():
    async with connect(sys.argv[1], max_size=None) as socket:
        await socket.send(sys.argv[2])
        await socket.send('{"type": "response.create"}')
        while json.loads(await socket.recv())["type"] != "response.created":
            pass
        print("speaking", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_process_killed_in_mid_reply(parts: Parts) -> None:
    """A client process that is killed in the middle of a reply leaks nothing."""

    async def test() -> None:
        async with serving(parts) as served:
            item = {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "hello"}],
            }
            asked = json.dumps({"type": "conversation.item.create", "item": item})
            client = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _ASKS, served.ws, asked, stdout=asyncio.subprocess.PIPE
            )
            assert client.stdout is not None
            assert await client.stdout.readline() == b"speaking\n"
            assert served.server_state.slots.taken == 1
            client.kill()
            await client.wait()
            await until(lambda: served.server_state.slots.taken == 0)

    run(test())


@LONG
@pytest.mark.long
def test_a_minute_of_fifty(parts: Parts) -> None:
    """After a minute of fifty concurrent sessions all counts and the memory are as before."""

    async def test() -> None:
        async with serving(parts, kv_rows=32_768, max_reply_s=0.8, max_sessions=100) as served:
            for seed in range(3):  # until the allocator's pools are full
                await crowd(served, 50, 50, seed)
            await served.quiet()
            gc.collect()
            before = handles(), len(asyncio.all_tasks())
            loop = asyncio.get_running_loop()
            end, seed = loop.time() + 45, 3
            memory: list[int] = []
            while loop.time() < end or len(memory) < 8:
                await crowd(served, 50, 50, seed)
                await served.quiet()
                gc.collect()
                memory.append(_resident_bytes())
                seed += 1
            await back_to_normal(served, *before)
            # One crowd and the next differ by up to 60 MiB, because freed blocks lie in other
            # places. Medians over a quarter of the minute stay within 15 MiB.
            quarter = len(memory) // 4
            growth = statistics.median(memory[-quarter:]) - statistics.median(memory[:quarter])
            assert growth < 40 << 20, [each >> 20 for each in memory]

    asyncio.run(test())


def _resident_bytes() -> int:
    """Memory in use, without what the allocator keeps for later."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
