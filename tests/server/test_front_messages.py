"""The messages between a front and the core, and the flow control of a forwarded connection."""

import asyncio
from typing import Any

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from mosslive.server.connections import WRITTEN, abort_connection
from mosslive.server.front.count import front_count
from mosslive.server.front.dispatcher import Dispatcher
from mosslive.server.front.link import Link
from mosslive.server.front.messages import (
    Kind,
    Packet,
    Window,
    pack,
    packed_scope,
    unpack,
    unpacked_scope,
)
from mosslive.server.settings import ServerSettings
from tests.server.front_rig import NAME, Pipe, Socket
from tests.server.rig import run, until

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.binary() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.lists(values))
def test_messages_survive_packing(packet: list[Any]) -> None:
    """What is unpacked equals what was packed; bytes and texts stay apart."""
    assert unpack(pack(packet)) == packet


@given(st.lists(st.tuples(st.binary(), st.binary())), st.text(), st.binary())
def test_a_scope_survives_packing(
    headers: list[tuple[bytes, bytes]], path: str, query: bytes
) -> None:
    """A scope arrives without functions and state, its pairs as pairs."""
    scope = {
        "type": "http",
        "path": path,
        "query_string": query,
        "headers": headers,
        "client": ("127.0.0.1", 5),
        "server": None,
    }
    extra = {"state": {"a": object()}, "extensions": {"x.y": {}, "mosslive.abort": print}}
    packet = unpack(pack([packed_scope(scope | extra)]))
    assert unpacked_scope(packet[0]) == scope | {"extensions": {"x.y": {}}}


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 9))
def test_a_window_bounds_what_is_on_its_way(sizes: list[int], released: int) -> None:
    """An open window has less than its limits on its way, and it opens again when all is taken."""

    async def test() -> None:
        window, waiting = Window(100, 5), list[int]()
        for size in sizes:
            while True:
                try:
                    async with asyncio.timeout(0):
                        await window.wait()
                    break
                except TimeoutError:
                    assert sum(waiting) >= 100 or len(waiting) >= 5
                    window.release(released)
                    del waiting[:released]
            assert sum(waiting) < 100
            assert len(waiting) < 5
            window.add(size)
            waiting.append(size)
        window.release(len(waiting))
        async with asyncio.timeout(1):
            await window.wait()

    asyncio.run(test())


def test_messages_keep_their_order() -> None:
    """A WebSocket that echoes gets each message back once, in order, however many there are."""

    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept", "headers": [(b"a", b"b")]})
        while (message := await receive())["type"] != "websocket.disconnect":
            await send({"type": "websocket.send", "text": message["text"]})

    async def test() -> None:
        pipe, socket = Pipe(echo), Socket()
        serving = asyncio.create_task(pipe.front(socket.scope(), socket.receive, socket.send))
        socket.push({"type": "websocket.connect"})
        texts = [f"{number}" * (1 + 977 * number % 3000) for number in range(700)]
        for text in texts:
            socket.push({"type": "websocket.receive", "text": text})
        await until(lambda: len(socket.written) == 701)
        assert socket.written[0]["headers"] == [(b"a", b"b")]
        assert [one["text"] for one in socket.written[1:]] == texts
        socket.push({"type": "websocket.disconnect", "code": 1000})
        await serving
        await pipe.core.ended()

    run(test())


def test_a_slow_client_blocks_the_application() -> None:
    """The core has at most a window of messages that are not written, and learns when each was; an
    abort reaches the socket."""
    sent, written, left = list[int](), list[float](), list[str]()

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        try:
            async with asyncio.timeout(0.2):
                while True:
                    text = "x" * 1000
                    await send({"type": "websocket.send", "text": text, WRITTEN: written.append})
                    sent.append(len(text))
        except TimeoutError:
            abort_connection(scope)
        while (message := await receive())["type"] != "websocket.disconnect":
            pass
        left.append(message["type"])

    async def test() -> None:
        pipe, socket = Pipe(flood), Socket()
        serving = asyncio.create_task(pipe.front(socket.scope(), socket.receive, socket.send))
        socket.push({"type": "websocket.connect"})
        await until(lambda: len(sent) > 200)
        socket.writable.clear()
        await until(lambda: socket.aborted)
        assert len(written) == len(socket.written) - 1  # all but the accept
        assert written == sorted(written)
        assert sum(sent) - sum(len(one["text"]) for one in socket.written[1:]) <= 65_000
        socket.writable.set()
        await serving
        assert left == ["websocket.disconnect"]

    run(test())


def test_a_fast_client_waits_for_the_application() -> None:
    """A front reads no more than its window of what the application does not take."""
    taking = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await taking.wait()
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async def test() -> None:
        pipe, socket = Pipe(slow), Socket()
        serving = asyncio.create_task(pipe.front(socket.scope(), socket.receive, socket.send))
        for _ in range(1000):
            socket.push({"type": "websocket.receive", "bytes": bytes(10_000)})
        await until(lambda: len(socket.incoming) < 990)
        await asyncio.sleep(0.05)
        forwarded = sum(packet[0] == Kind.RECEIVED for packet in pipe.to_core)
        assert forwarded * 10_000 <= (256 << 10) + 10_000
        taking.set()
        socket.push({"type": "websocket.disconnect", "code": 1000})
        await serving
        assert not socket.incoming

    run(test())


def test_a_body_is_read_when_the_application_wants_it() -> None:
    """A refused upload is not read, so a client that waits for "100 Continue" never gets it."""

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    async def test() -> None:
        pipe, socket = Pipe(refuse), Socket()
        socket.push({"type": "http.request", "body": b"x", "more_body": True})
        await pipe.front(socket.scope("http"), socket.receive, socket.send)
        assert [one["type"] for one in socket.written] == [
            "http.response.start",
            "http.response.body",
        ]
        assert len(socket.incoming) == 1

    run(test())


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_lost_front(kind: str) -> None:
    """When a front is lost, the application gets a disconnect message and cannot send any more."""
    got: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while not (message := await receive())["type"].endswith(".disconnect"):
            got.append(message["type"])
        got.append(message["type"])
        try:
            for _ in range(100):
                await send({"type": "http.response.body", "body": bytes(10_000)})
        except OSError:
            got.append("cannot send")

    async def test() -> None:
        pipe, socket = Pipe(app), Socket()
        serving = asyncio.create_task(pipe.front(socket.scope(kind), socket.receive, socket.send))
        socket.push({"type": f"{kind}.first"})
        await until(lambda: len(got) == 1)
        pipe.core.lost(NAME)
        await pipe.core.ended()
        await serving
        last = ["cannot send"] if kind == "websocket" else []
        assert got == [f"{kind}.first", f"{kind}.disconnect", *last]

    run(test())


def test_an_error_of_reading_ends_the_connection() -> None:
    """The application gets a disconnect message at once, and the server of the front the error."""
    got: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while not (message := await receive())["type"].endswith(".disconnect"):
            got.append(message["type"])
        got.append(message["type"])

    async def test() -> None:
        pipe, socket = Pipe(app), Socket()
        socket.push({"type": "websocket.first"})

        async def receive() -> Message:
            if socket.incoming:
                return socket.incoming.popleft()
            raise RuntimeError("cannot read")

        with pytest.raises(RuntimeError, match="cannot read"):
            await pipe.front(socket.scope(), receive, socket.send)
        await pipe.core.ended()
        assert got == ["websocket.first", "websocket.disconnect"]

    run(test())


BAD: list[Any] = [
    [],
    3,
    [Kind.WRITTEN],
    [Kind.OPEN, 1, {}],
    [Kind.OPEN, [], {"type": "http", "extensions": []}],
    [Kind.OPEN, 1, {"type": "x", "extensions": []}],
]


@pytest.mark.parametrize("bad", [pack(packet) for packet in BAD] + [b"\xc1", b""])
def test_a_bad_message_does_not_harm_the_next(bad: bytes) -> None:
    """The link reports who sent it and handles what was sent with it and after it; the core keeps
    no connection for it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()

    async def test() -> None:
        taken: list[Packet] = []
        refused: list[bytes] = []
        core = Dispatcher(app, lambda packet, front: None)

        def take(name: bytes, packet: Packet) -> None:
            core.take(name, packet)
            taken.append(packet)

        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.ROUTING_ID, NAME)
        dealer.connect(f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}")
        link = Link(router, take, refused.append)
        good: list[Packet] = [[Kind.GONE, 7], [Kind.GONE, 8]]
        dealer.send_multipart([bad, pack(good[0])])
        dealer.send(pack(good[1]))
        await until(lambda: len(taken) == 2)
        assert (taken, refused) == (good, [NAME])
        core.lost(NAME)
        assert await core.ended(0)
        link.close()
        dealer.close(linger=0)
        context.term()

    run(test())


def test_the_default_number_of_fronts(monkeypatch: pytest.MonkeyPatch) -> None:
    """None on a CPU; on a GPU one for each four usable cores, at least one and at most four."""
    for cores, count in ((1, 1), (4, 1), (8, 2), (16, 4), (192, 4)):
        monkeypatch.setattr("mosslive.server.front.count.usable_cores", lambda cores=cores: cores)
        assert front_count(ServerSettings(device="cuda")) == count
        assert front_count(ServerSettings(device="cpu")) == 0
        assert front_count(ServerSettings(device="cuda", fronts=0)) == 0
        assert front_count(ServerSettings(fronts=7)) == 7
