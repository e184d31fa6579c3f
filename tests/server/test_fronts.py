"""Servers with front processes: all works through them, and a front that dies is replaced."""

import asyncio
import base64
import io
import os
import random
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import soundfile
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from mosslive.server.backend import Backend
from mosslive.server.run import make_server
from tests.server.auth import KEY, bearing, closed, denied
from tests.server.caller import calling
from tests.server.processes import faulty
from tests.server.rig import (
    WAIT_S,
    Event,
    Parts,
    Peer,
    run,
    serving,
    settings,
    spoken,
    turn,
    until,
    wav,
)

SOUND = "response.output_audio.delta"


def comparable(events: list[Event]) -> list[Event]:
    """Ids replaced by the number of their first appearance, and consecutive pieces of sound joined:
    how it is cut depends on when a writer gets its turn."""
    names: dict[str, str] = {}
    joined: list[Event] = []

    def plain(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: plain(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [plain(inner) for inner in value]
        if isinstance(value, str) and (key == "id" or key.endswith("_id")):
            return names.setdefault(value, f"id {len(names)}")
        return 0 if key == "expires_at" else value

    for event in events:
        one = {name: value for name, value in event.items() if name != "event_id"}
        if one["type"] == SOUND:
            one["delta"] = base64.b64decode(one["delta"])
            if joined[-1]["type"] == SOUND:
                joined[-1]["delta"] += one["delta"]
                continue
        joined.append(one)
    return [plain(event) for event in joined]


async def conversation(parts: Parts, fronts: int) -> list[Event]:
    """Three turns, by voice activity and by commit, with an error and new settings between them."""
    async with serving(parts, fronts=fronts) as served, served.session() as peer:
        await peer.say(turn())
        await peer.until("response.done")
        await peer.send("nonsense")
        await peer.api_error()
        await peer.manual()
        await peer.ask(spoken(0.4, seed=3))
        detection = {"type": "server_vad", "silence_duration_ms": 300}
        audio_input = {"format": {"type": "audio/pcmu"}, "turn_detection": detection}
        await peer.send(
            "session.update", session={"type": "realtime", "audio": {"input": audio_input}}
        )
        out = io.BytesIO()  # sent at once, before the settings are confirmed
        soundfile.write(out, turn(seed=4)[::3], 8000, format="RAW", subtype="ULAW")
        for first in range(0, len(out.getvalue()), 333):
            piece = base64.b64encode(out.getvalue()[first : first + 333]).decode()
            await peer.send("input_audio_buffer.append", audio=piece)
        await peer.until("response.done")
        return peer.events


def test_fronts_change_nothing(parts: Parts) -> None:
    """The same conversation gives the same events and the same sound, with and without fronts."""

    async def test() -> None:
        alone, forwarded = [await conversation(parts, fronts) for fronts in (0, 2)]
        expected = comparable(alone)
        assert comparable(forwarded) == expected
        sounds = [len(one["delta"]) for one in expected if one["type"] == SOUND]
        assert sounds == [76_800] * 3

    run(test())


def test_http_through_a_front(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status, headers and bodies of all kinds of endpoints pass a front: files, errors, uploads,
    streams, refused handshakes. The front knows no key."""
    monkeypatch.setenv("MOSSLIVE_API_KEYS", KEY)

    async def test() -> None:
        async with (
            serving(parts, fronts=1, api_keys=(KEY,), max_upload_bytes=200_000) as served,
            httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http,
        ):
            assert (await http.get("/health")).json() == {"status": "ok"}
            assert served.fronts is not None
            (pid,) = served.fronts.ready
            for name in ("environ", "cmdline"):
                assert KEY.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
            assert "<html" in (await http.get("/")).text
            assert (await http.get("/v1/models")).status_code == 401
            http.headers["authorization"] = f"Bearer {KEY}"
            assert (await http.get("/v1/models")).json()["data"][0]["id"] == "moss-speech"
            wrong = await http.get("/v1/realtime")
            assert (wrong.status_code, wrong.headers["upgrade"]) == (426, "websocket")
            assert (await http.delete("/v1/models")).headers["allow"]
            big = await http.post("/v1/audio/transcriptions", content=bytes(300_000))
            assert big.status_code == 413
            upload = {"file": ("x.wav", wav(1.6), "audio/wav")}
            made = await http.post("/v1/voices", data={"name": "eve"}, files=upload)
            assert made.status_code in (200, 201), made.text
            asked = {"input": "x", "response_format": "pcm"}
            async with http.stream("POST", "/v1/audio/speech", json=asked) as answer:
                pieces = [piece async for piece in answer.aiter_raw()]
            assert len(b"".join(pieces)) > 48_000
            assert await denied(served) == (401, "invalid_api_key")
            async with connect(served.ws, **bearing(KEY)) as line:
                assert (await Peer(line).next())["type"] == "session.created"

    run(test())


def test_limits_through_a_front(parts: Parts) -> None:
    """Sessions beyond the limit get 429, too long events close the socket, idle clients too."""

    async def test() -> None:
        limits: dict[str, Any] = {"max_sessions": 1, "max_event_bytes": 4096, "idle_s": 1.5}
        async with serving(parts, fronts=2, **limits) as served:
            async with served.session() as peer:
                assert await denied(served) == (429, "too_many_sessions")
                assert await closed(peer) == (1008, "idle for too long")
            await served.quiet()
            async with served.session() as peer:
                await peer.send("x", text="x" * 5000)
                assert (await closed(peer))[0] == 1009

    run(test())


def test_a_call_through_a_front(parts: Parts) -> None:
    """The offer of a WebRTC call passes a front; its media goes to the server itself."""

    async def test() -> None:
        async with serving(parts, fronts=1) as served, calling(served) as caller:
            caller.microphone.speak(turn())
            await caller.until("response.done")

    run(test())


def test_drain_through_a_front(parts: Parts) -> None:
    """A draining server lets the response finish and closes the socket with 1001."""

    async def test() -> None:
        async with serving(parts, fronts=2) as served, served.session() as peer:
            await peer.manual()
            await peer.say(spoken(0.4))
            await peer.send("input_audio_buffer.commit")
            await peer.send("response.create")
            await peer.until("response.created")
            draining = asyncio.get_running_loop().create_task(served.server_state.drain())
            assert (await peer.until("response.done"))["response"]["status"] == "incomplete"
            assert await closed(peer) == (1001, "the server is shutting down")
            await draining

    run(test())


def test_fronts_share_the_connections(parts: Parts) -> None:
    """Sessions are spread evenly, and their front's death ends them alone: the others do not
    notice, slots and pages are free again, and a new front takes its place."""

    async def test() -> None:
        random.seed(5)
        async with serving(parts, fronts=2) as served:
            assert served.fronts is not None
            await until(lambda: len(served.fronts.ready) == 2)  # type: ignore[union-attr]
            for _ in range(2):
                await _kill_one(served)
            restarts = served.server_state.metrics.front_restarts
            assert restarts._value.get() == 2

    async def _kill_one(served: Any) -> None:
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(served.session()) for _ in range(4)]
            talking = [asyncio.create_task(_talk(peer)) for peer in peers]
            await asyncio.sleep(random.uniform(0.05, 0.6))
            os.kill(random.choice(served.fronts.ready), signal.SIGKILL)
            ends = await asyncio.gather(*talking)
            assert sorted(ends) == ["done", "done", "lost", "lost"]
        await served.quiet()
        await until(lambda: len(served.fronts.ready) == 2)

    async def _talk(peer: Peer) -> str:
        try:
            await peer.manual()
            for _ in range(2):
                await peer.ask()
        except ConnectionClosed:
            return "lost"
        return "done"

    run(test())


def test_fronts_end_with_the_server(nano_folder: Path, tmp_path: Path) -> None:
    """A server that is killed leaves no front process and no socket behind."""

    async def test() -> None:
        async with faulty(nano_folder, tmp_path / "switch", "none", fronts=2) as served:
            assert (await served.ask())["status"] == "incomplete"
            await until(lambda: len(served.logged("front started")) == 2)
            pids = [line["pid"] for line in served.logged("front started")]
            assert all(_alive(pid) for pid in pids)
            served.process.kill()
            await served.process.wait()
            await until(lambda: not any(_alive(pid) for pid in pids))

    run(test())


def test_a_signal_to_all_processes_drains(nano_folder: Path, tmp_path: Path) -> None:
    """Fronts ignore SIGTERM, which service managers send to all processes: the server drains, and
    ends its fronts."""

    async def test() -> None:
        async with faulty(nano_folder, tmp_path / "switch", "none", fronts=1) as served:
            pids = [line["pid"] for line in served.logged("front started")]
            async with served.session() as peer:
                for pid in (*pids, served.process.pid):
                    os.kill(pid, signal.SIGTERM)
                assert (await closed(peer))[0] == 1001
            assert await served.process.wait() == 0
            assert not any(_alive(pid) for pid in pids)

    run(test())


async def never() -> Backend:
    """Loads until it is cancelled."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError


def test_fronts_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gives up with an error that says so, instead of starting fronts for ever."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    monkeypatch.setattr("mosslive.server.front.supervisor._MOST_WAIT_S", 0.01)

    async def test() -> None:
        server, _ = make_server(settings(fronts=2), never)
        await server._serve()
        assert "front processes cannot start (exit status 1, 5 times)" in str(server.failure)

    run(test())


def test_a_server_that_ends_while_fronts_start() -> None:
    """The server does not wait for fronts that are not ready yet, and leaves none behind."""

    async def test() -> None:
        server, _ = make_server(settings(fronts=2), never)
        serving = asyncio.create_task(server._serve())
        await until(lambda: server.started)
        assert server.fronts is not None
        await until(lambda: len(server.fronts._fronts) == 2)  # type: ignore[union-attr]
        pids = [front.process.pid for front in server.fronts._fronts.values()]
        server.should_exit = True
        async with asyncio.timeout(5):
            await serving
        assert not any(_alive(pid) for pid in pids)

    run(test())


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
