"""An unmodified WebRTC peer (aiortc) with a scripted microphone and a data channel.

Records all events and all sound it receives.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Any

import httpx
import numpy as np
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av import AudioFrame
from numpy.typing import NDArray

from tests.server.rig import RATE, WAIT_S, Event, Served, until

_FRAME = RATE // 50
Wave = NDArray[np.float32]


class Microphone(MediaStreamTrack):
    """A microphone in real time, silent between calls of `speak`."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._frames: deque[NDArray[np.int16]] = deque()
        self._sent = 0
        self._began: float | None = None
        self.quiet_after = False  # sends nothing while it is silent, once it has spoken

    def speak(self, wave: Wave) -> None:
        pcm = (wave.clip(-1, 1) * 32767).astype(np.int16)
        for first in range(0, len(pcm), _FRAME):
            self._frames.append(np.resize(pcm[first : first + _FRAME], _FRAME))

    @property
    def speaking(self) -> bool:
        return bool(self._frames)

    async def recv(self) -> AudioFrame:
        if self.readyState != "live":
            raise MediaStreamError
        self._began = self._began or time.monotonic()
        while self.quiet_after and not self._frames:
            await asyncio.sleep(0.02)
            self._sent = round((time.monotonic() - self._began) * RATE) // _FRAME * _FRAME
        await asyncio.sleep(max(0.0, self._began + self._sent / RATE - time.monotonic()))
        wave = self._frames.popleft() if self._frames else np.zeros(_FRAME, np.int16)
        frame = AudioFrame.from_ndarray(wave[None], "s16", "mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, self._sent, Fraction(1, RATE)
        self._sent += _FRAME
        return frame


class Caller:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.heard: list[NDArray[np.int16]] = []  # mono, 48 kHz
        self.microphone = Microphone()
        self.peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.peer.addTrack(self.microphone)
        self.channel = self.peer.createDataChannel("oai-events")
        self.channel.on("message", lambda text: self.events.append(json.loads(text)))
        self.peer.on("track", self._on_track)
        self.location = ""
        self._read = 0
        self._hearing: asyncio.Task[None] | None = None

    async def offer(self) -> str:
        await self.peer.setLocalDescription(await self.peer.createOffer())
        return str(self.peer.localDescription.sdp)

    async def take(self, answer: httpx.Response) -> None:
        assert answer.status_code == 201, answer.text
        assert answer.headers["content-type"].startswith("application/sdp")
        self.location = answer.headers["location"]
        await self.peer.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))

    def send(self, kind: str, **fields: Any) -> None:
        self.channel.send(json.dumps({"type": kind} | fields))

    async def until(self, kind: str) -> Event:
        """The next event of that type after the events already read."""

        def found() -> bool:
            while self._read < len(self.events):
                self._read += 1
                if self.events[self._read - 1]["type"] == kind:
                    return True
            return False

        try:
            await until(found)
        except TimeoutError:
            raise AssertionError(f"no {kind} after {self.types()[-12:]}") from None
        return self.events[self._read - 1]

    def forget(self) -> None:
        """Discards all events so far."""
        self.events.clear()
        self._read = 0

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def sound(self) -> NDArray[np.int16]:
        return np.concatenate([*self.heard, np.zeros(0, np.int16)])

    async def close(self) -> None:
        self.microphone.stop()
        await self.peer.close()
        if self._hearing:
            await self._hearing

    def _on_track(self, track: MediaStreamTrack) -> None:
        self._hearing = asyncio.get_running_loop().create_task(self._hear(track))

    async def _hear(self, track: MediaStreamTrack) -> None:
        while True:
            try:
                frame = await track.recv()
            except MediaStreamError:
                return
            assert isinstance(frame, AudioFrame)
            wave: Any = frame.to_ndarray()
            self.heard.append(wave.reshape(-1, frame.layout.nb_channels)[:, 0])


@asynccontextmanager
async def calling(
    served: Served,
    session: Event | None = None,
    key: str | None = None,
    most_bytes: int = 262_144,
) -> AsyncIterator[Caller]:
    """A connected peer, past `session.created`. With a session it posts the form, else plain SDP.
    `most_bytes` of one message."""
    caller = Caller()
    try:
        async with httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http:
            headers = {"authorization": f"Bearer {key}"} if key else {}
            offer = (await caller.offer()).replace("size:262144", f"size:{most_bytes}")
            await caller.take(await post(http, offer, session, headers))
        await caller.until("session.created")
        yield caller
    finally:
        await caller.close()


async def post(
    http: httpx.AsyncClient, offer: str, session: Event | None, headers: dict[str, str]
) -> httpx.Response:
    where = "/v1/realtime/calls?model=test"
    if session is None:
        kind = {"content-type": "application/sdp"}
        return await http.post(where, content=offer, headers=headers | kind)
    parts: Any = {
        "sdp": (None, offer, "application/sdp"),
        "session": (None, json.dumps(session), "application/json"),
    }
    return await http.post(where, files=parts, headers=headers)
