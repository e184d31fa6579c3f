"""Clients that do not read and clients that do not finish a request are closed."""

import asyncio
import gc
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from mosslive.server import connections, requests, status_api
from mosslive.server.requests import ClosingStream
from tests.server.rig import WAIT_S, Parts, run, serving, until

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("fronts", [0, 1])
def test_a_reader_that_does_not_read(parts: Parts, fronts: int) -> None:
    """A client that does not read is closed when its queue is full, and does not slow other
    clients."""

    async def test() -> None:
        limits: dict[str, Any] = {
            "send_queue_bytes": 200_000,
            "send_timeout_s": 0.5,
            "max_event_bytes": 1 << 20,
        }
        async with serving(parts, fronts=fronts, **limits) as served, served.session() as other:
            await other.manual()
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
            writer.write(
                b"GET /v1/realtime HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            await reader.readuntil(b"\r\n\r\n")
            # Requests its configuration repeatedly and reads none of the answers.
            tracing = json.dumps({"workflow_name": "y" * 15_000})
            event = f'{{"type":"session.update","session":{{"tracing":{tracing}}}}}'.encode()
            frame = b"\x81\xfe" + len(event).to_bytes(2, "big") + bytes(4) + event

            async def flood() -> None:
                while True:
                    writer.write(frame)
                    await writer.drain()

            flooding = asyncio.get_running_loop().create_task(flood())
            async with asyncio.timeout(WAIT_S):
                for _ in range(3):
                    await other.ask()
                while served.server_state.slots.taken > 1:
                    await asyncio.sleep(0.01)
            flooding.cancel()
            await asyncio.wait([flooding])
            writer.transport.abort()
            dropped = served.server_state.metrics.dropped.labels("the reader is too slow")
            assert dropped._value.get() == 1

    run(test())


@pytest.mark.parametrize("fronts", [0, 1])
def test_an_http_reader_that_does_not_read(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, fronts: int
) -> None:
    """An HTTP client that does not read is closed, and its resources are freed."""
    ended: list[str] = []

    async def zeros(name: str) -> AsyncGenerator[bytes]:
        try:
            while True:
                yield bytes(1 << 16)
        finally:
            ended.append(name)

    async def endless(request: Request) -> Response:
        source = zeros("source")
        await anext(source)
        return ClosingStream(zeros("chunks"), source, "audio/pcm")

    monkeypatch.setattr(status_api, "version", endless)

    async def test() -> None:
        async with serving(parts, fronts=fronts, send_timeout_s=0.3) as served:
            with socket.create_connection(("127.0.0.1", served.port)) as line:
                line.sendall(b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                counted = served.server_state.metrics.requests.labels("/version", "499")
                await until(lambda: counted._value.get() == 1)
                assert ended == ["chunks", "source"]

    run(test())


def test_a_client_that_leaves_during_a_reply(parts: Parts) -> None:
    """A reply ends as soon as its client leaves, not when the garbage collector runs."""

    async def test() -> None:
        async with (
            serving(parts, max_reply_s=40.0, min_reply_s=40.0) as served,
            httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http,
        ):
            chat = {"stream": True, "messages": [{"role": "user", "content": "Hi."}]}
            for path, body in (
                ("audio/speech", {"input": "x", "response_format": "pcm"}),
                ("audio/speech", {"input": "x", "stream_format": "sse"}),
                ("chat/completions", chat | {"modalities": ["text", "audio"]}),
            ):
                async with http.stream("POST", f"/v1/{path}", json=body) as answer:
                    await anext(answer.aiter_raw())
                    assert served.server_state.requests.taken == 1
                await until(lambda: served.server_state.requests.taken == 0)

    gc.disable()
    try:
        run(test())
    finally:
        gc.enable()


def test_a_head_that_does_not_end(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that sends nothing or half a request head is closed, first and later requests
    alike; a silent session is not."""
    monkeypatch.setattr(connections, "HEAD_S", 0.3)

    async def test() -> None:
        async with serving(parts) as served, served.session() as peer:
            whole = b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            for sent in (b"", whole[:9], whole):
                reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
                async with asyncio.timeout(WAIT_S):
                    writer.write(sent)
                    if sent == whole:
                        await reader.readuntil(b"}")
                        writer.write(whole[:9])
                    with suppress(ConnectionResetError):
                        assert await reader.read() == b""
                writer.close()
            await peer.manual()
            await peer.ask()

    run(test())


def test_a_body_that_does_not_end(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body must arrive within its time limit, and a client that leaves in the middle of one
    causes no server error."""
    monkeypatch.setattr(requests, "_BODY_S", 0.3)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"

    async def test() -> None:
        async with serving(parts) as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(head)
            async with asyncio.timeout(WAIT_S):
                assert b"408" in await reader.readline()
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(head)
            await writer.drain()
            writer.transport.abort()
            counted = served.server_state.metrics.requests.labels("/v1/chat/completions", "499")
            await until(lambda: counted._value.get() == 1)

    run(test())
