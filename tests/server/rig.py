"""A whole server in the event loop of the test: real sockets, nano models, loud sound is speech.

`serving` starts it and asserts on exit that no session, task, page or reply of the codec is left.
With TEST_FRONTS=1 in the environment, every server of these tests has a front process.
"""

import asyncio
import base64
import io
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect

from mosslive import Engine
from mosslive.codec import Codec, Voice
from mosslive.server.backend import Backend
from mosslive.server.front.supervisor import Fronts
from mosslive.server.run import make_server
from mosslive.server.server_state import ServerState
from mosslive.server.settings import ServerSettings
from mosslive.server.step_times import StepTimes
from mosslive.server.voice_folder import VoiceFolder
from mosslive.server.voice_store import VoiceStore
from mosslive.talk import CodecService
from tests.codec.conftest import speech
from tests.talk.rig import LoudVad

RATE = 24_000
WAIT_S = 60.0  # only a test that fails waits this long; shared machines can be slow
CODES = 20  # of a reply
Event = dict[str, Any]


@dataclass(frozen=True)
class Parts:
    lm: Path
    codec: Codec
    voice: Voice


@dataclass
class Served:
    server_state: ServerState
    port: int
    backend: Backend
    fronts: Fronts | None

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime?model=test"

    @asynccontextmanager
    async def session(self, **options: Any) -> AsyncIterator["Peer"]:
        """A plain client, past `session.created`."""
        async with connect(self.ws, max_size=None, open_timeout=WAIT_S, **options) as socket:
            peer = Peer(socket)
            await peer.until("conversation.created")
            yield peer

    async def quiet(self) -> None:
        """Waits until every session has ended and every page is free."""
        engine = self.backend.engine
        await self.server_state.slots.emptied()
        await self.server_state.requests.emptied()
        await until(lambda: engine.stats().conversations == 0)
        await until(lambda: engine.stats().free_pages == engine.stats().pages)
        codec = self.backend.codec
        await until(lambda: codec is None or codec.open_replies == 0)


@dataclass
class Peer:
    """Sends events and records all events it receives."""

    socket: ClientConnection

    def __post_init__(self) -> None:
        self.events: list[Event] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind} | fields))

    async def next(self) -> Event:
        async with asyncio.timeout(WAIT_S):
            event: Event = json.loads(await self.socket.recv())
        self.events.append(event)
        return event

    async def until(self, kind: str, **fields: Any) -> Event:
        """The next event of that type; reads all events before it."""
        while True:
            event = await self.next()
            if event["type"] == kind and fields.items() <= event.items():
                return event

    async def api_error(self) -> Event:
        error: Event = (await self.until("error"))["error"]
        return error

    async def say(self, wave: NDArray[np.float32]) -> None:
        """Sends packets of 50 ms as fast as possible."""
        step = RATE // 20
        for first in range(0, len(wave), step):
            await self.send("input_audio_buffer.append", audio=pcm(wave[first : first + step]))

    async def manual(self) -> None:
        await self.send("session.update", session=MANUAL)
        await self.until("session.updated")

    async def ask(self, wave: NDArray[np.float32] | None = None) -> Event:
        """A turn without turn detection → its response."""
        await self.say(spoken(0.4) if wave is None else wave)
        await self.send("input_audio_buffer.commit")
        await self.send("response.create")
        return await self.until("response.done")

    def types(self, *without: str) -> list[str]:
        return [event["type"] for event in self.events if event["type"] not in without]


MANUAL = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}


def pcm_bytes(wave: NDArray[np.float32]) -> bytes:
    return (wave.clip(-1, 1) * 32767).astype("<i2").tobytes()


def pcm(wave: NDArray[np.float32]) -> str:
    return base64.b64encode(pcm_bytes(wave)).decode()


def spoken(seconds: float, seed: int = 0) -> NDArray[np.float32]:
    """Loud throughout, so that turn detection sees one turn."""
    wave = speech(seconds, RATE, seed)
    wave[::50] += 0.1
    return wave


def wav(seconds: float = 0.4, kind: str = "WAV") -> bytes:
    out = io.BytesIO()
    soundfile.write(out, spoken(seconds), RATE, format=kind)
    return out.getvalue()


def turn(seconds: float = 0.5, seed: int = 0) -> NDArray[np.float32]:
    """Speech, and the silence that ends the turn."""
    return np.concatenate((spoken(seconds, seed), np.zeros(RATE * 7 // 10, np.float32)))


def settings(**changes: Any) -> ServerSettings:
    seconds = CODES * 0.08
    base: dict[str, Any] = {
        "port": 0,
        "seed": 5,
        "fronts": int(os.environ.get("TEST_FRONTS", "0")),
        "max_reply_s": seconds,
        "min_reply_s": 2 * seconds,
        "admit_overload": True,  # otherwise a busy machine would refuse clients
    }
    return ServerSettings(**base | {"instructions": "Hi."} | changes)


@asynccontextmanager
async def serving(
    parts: Parts,
    *,
    silent: bool = False,
    kv_rows: int | None = None,
    times: dict[str, StepTimes] | None = None,
    **changes: Any,
) -> AsyncIterator[Served]:
    """`silent`: without a codec and a voice. `kv_rows`: the size of the page pool, which limits the
    sessions. `times`: of steps, as if measured at start; they limit the conversations."""
    given = settings(**changes)
    made: list[Backend] = []

    async def load() -> Backend:
        engine = Engine.load(parts.lm, kv_rows=kv_rows)
        folder = VoiceFolder(given.voices_dir) if given.voices_dir else None
        store = VoiceStore(None if silent else parts.voice, [], given.max_voices, folder)
        store.fill(parts.codec.voice)
        codec = None if silent else CodecService(parts.codec, priority=engine.priority)
        made.append(Backend(engine, codec, store, given, LoudVad, times=times))
        return made[0]

    before = asyncio.all_tasks()
    server, server_state = make_server(given, load)
    task = asyncio.get_running_loop().create_task(server._serve())
    try:
        await until(lambda: server_state.state == "ready" or task.done())
        served = Served(server_state, server.port, made[0], server.fronts)
        yield served
        async with asyncio.timeout(WAIT_S):
            await served.quiet()
    finally:
        server.should_exit = True
        await task
    left = asyncio.all_tasks() - before
    assert not left, left


async def until(done: Callable[[], bool]) -> None:
    """Waits for a change that another thread makes, and lets other tasks run meanwhile."""
    async with asyncio.timeout(WAIT_S):
        while not done():
            await asyncio.sleep(0.002)


def run(test: Awaitable[None], most_s: float = 3 * WAIT_S) -> None:
    async def main() -> None:
        async with asyncio.timeout(most_s):
            await test

    asyncio.run(main())
