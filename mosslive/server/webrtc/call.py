"""One call: a peer connection and the session it carries, from the offer to the last goodbye.

The peer's microphone goes into the session at the session's rate, replies go out through the
speaker, events both ways over the data channel `oai-events`. Knows connections and limits, not what
events mean.
"""

import asyncio
import json
import time
from typing import Any

import numpy as np
import torch
from aiortc import (
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av import AudioFrame
from numpy.typing import NDArray

from mosslive.codec.resample import ResampleStream
from mosslive.errors import MossliveError
from mosslive.server.api_errors import ApiError, as_api_error, error_event, new_id
from mosslive.server.realtime.buffer_events import hear
from mosslive.server.realtime.handlers import HANDLERS
from mosslive.server.realtime.session import Client, RealtimeSession
from mosslive.server.run_session import (
    CLIENT_LEFT,
    INTERNAL,
    NORMAL,
    POLICY,
    SessionEnd,
    run_session,
)
from mosslive.server.send_queue import SendQueue, SlowReader
from mosslive.server.server_state import ServerState
from mosslive.server.webrtc.audio_track import OutgoingTrack
from mosslive.server.webrtc.event_inbox import Flood, Inbox
from mosslive.server.webrtc.offer import own_formats
from mosslive.server.webrtc.playback_events import PlaybackEvents

CHANNEL = "oai-events"
WIRE_HZ = 24_000  # of a session's PCM; the track is resampled on its way
LEAD_S = 0.3  # sound handed to the track ahead of time: rides out a busy moment
CONNECT_S = 30.0  # from the answer until the peer is here
_MOST_WAITING_S = 120.0  # of sound in line: replies made aside come faster than they are played
_GOODBYE_S = 0.5
_CLOSE_S = 5.0
_CHANNEL_BYTES = 1 << 18  # in the data channel at once; the rest waits in the outbox


class Call:
    def __init__(self, server_state: ServerState, client: Client, ice: list[RTCIceServer]) -> None:
        """Raises what a session raises."""
        self.id, self.owner = new_id("rtc"), client.owner
        settings = server_state.settings
        self._server_state = server_state
        self._send_queue = SendQueue(settings.send_queue_bytes)
        self._inbox = Inbox(settings.max_event_bytes)
        self.speaker = OutgoingTrack(WIRE_HZ, _MOST_WAITING_S)
        self.speaker.on_gap = server_state.metrics.gap
        self.playing = PlaybackEvents(self.speaker, self._send_queue.put, self._inbox.put_own)
        self.session = RealtimeSession(
            server_state.backend,
            client,
            self.playing.send,
            HANDLERS | self.playing.handlers(),
            server_state.metrics,
            lead_s=LEAD_S,
            expires_at=int(time.time() + settings.max_session_s),
        )
        self.playing.join(self.session)
        loop = asyncio.get_running_loop()
        self._channel: asyncio.Future[RTCDataChannel] = loop.create_future()
        self._microphone: asyncio.Future[MediaStreamTrack] = loop.create_future()
        self._left: asyncio.Future[SessionEnd] = loop.create_future()
        self._active_at = loop.time()
        self._room = asyncio.Event()  # in the data channel
        # Without a list of our own, aiortc would ask a public STUN server.
        self._peer = RTCPeerConnection(RTCConfiguration(iceServers=ice))
        self._peer.on("track", self._on_track)
        self._peer.on("datachannel", self._on_channel)
        self._peer.on("connectionstatechange", self._on_state)

    async def answer(self, offer: str) -> str:
        """The answer's SDP."""
        peer = self._peer
        try:
            await peer.setRemoteDescription(RTCSessionDescription(offer, "offer"))
            peer.addTrack(self.speaker)
            await peer.setLocalDescription(await peer.createAnswer())
        except Exception as error:  # whatever a malformed offer brings about in there
            self.session.log.info("an offer failed: %r", error)
            raise ApiError("the offer cannot be answered", "invalid_sdp", "sdp") from None
        return str(peer.localDescription.sdp)

    def hang_up(self) -> None:
        self._leave(SessionEnd(NORMAL, "hung up"))

    async def run(self) -> None:
        """Until somebody leaves. Everything is given back afterwards."""
        session, metrics, began = self.session, self._server_state.metrics, time.monotonic()
        metrics.sessions_total.labels("webrtc").inc()
        metrics.sessions.labels("webrtc").inc()
        try:
            session.log.info("session begins", extra={"call": self.id})
            leave = await run_session(
                self._server_state,
                session,
                self._until_left(),
                self._connected_in_time(),
                self._read(),
                self._write(),
                self._listen(),
                self._until_idle(),
                delivered=self._delivered,
            )
            session.log.info("session ends", extra={"code": leave.code, "reason": leave.reason})
            await self._goodbye(leave)
        finally:
            metrics.sessions.labels("webrtc").dec()
            metrics.session_seconds.observe(time.monotonic() - began)
            await self.close()

    async def close(self) -> None:
        """Again is fine."""
        self.speaker.clear()
        self.speaker.stop()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._peer.close()
        except TimeoutError:
            self.session.log.warning("a peer connection did not close in time")
        finally:
            await self.session.close()

    # What the peer connection tells.

    def _on_track(self, track: MediaStreamTrack) -> None:
        if not self._microphone.done():
            self._microphone.set_result(track)

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if channel.label != CHANNEL or self._channel.done():
            channel.close()
            return
        channel.bufferedAmountLowThreshold = _CHANNEL_BYTES // 2
        channel.on("message", self._on_message)
        channel.on("bufferedamountlow", self._room.set)
        channel.on("close", lambda: self._leave(SessionEnd(NORMAL, CLIENT_LEFT)))
        self._channel.set_result(channel)

    def _on_message(self, message: str | bytes) -> None:
        self._active_at = asyncio.get_running_loop().time()
        self._inbox.put(message)

    def _on_state(self) -> None:
        if self._peer.connectionState in ("failed", "closed"):
            self._leave(SessionEnd(NORMAL, CLIENT_LEFT))

    def _leave(self, leave: SessionEnd) -> None:
        if not self._left.done():
            self._left.set_result(leave)

    # What runs side by side.

    async def _until_left(self) -> None:
        raise await asyncio.shield(self._left)

    async def _connected_in_time(self) -> None:
        await asyncio.sleep(CONNECT_S)
        if self._peer.connectionState != "connected":
            raise SessionEnd(POLICY, "no connection came about")
        await _for_ever()

    async def _read(self) -> None:
        session = self.session
        try:
            while True:
                try:
                    event = await self._inbox.get()
                except ApiError as api_error:
                    session.send_error(api_error)
                    continue
                await session.handle(own_formats(event))
                await asyncio.sleep(0)  # many may wait: other sessions go on between two of them
        except Flood:
            raise SessionEnd(POLICY, "events come faster than they can be handled") from None

    async def _write(self) -> None:
        channel = await asyncio.shield(self._channel)
        try:
            while True:
                text = await self._send_queue.get()
                async with asyncio.timeout(self._server_state.settings.send_timeout_s):
                    while channel.bufferedAmount > _CHANNEL_BYTES:
                        self._room.clear()
                        await self._room.wait()
                self._send(channel, text)
                await asyncio.sleep(0)  # a channel with room for all does not wait by itself
        except (SlowReader, TimeoutError):
            raise SessionEnd(POLICY, "the reader is too slow") from None

    def _send(self, channel: RTCDataChannel, text: str) -> None:
        if channel.readyState != "open":
            raise SessionEnd(NORMAL, CLIENT_LEFT)
        try:
            channel.send(text)
        except ValueError:  # longer than the peer takes
            kind = json.loads(text)["type"]
            message = f"{kind} has {len(text)} bytes, more than the peer accepts in one message"
            channel.send(json.dumps(error_event(ApiError(message, "event_too_large"))))

    async def _listen(self) -> None:
        track = await asyncio.shield(self._microphone)
        ear = _Microphone()
        refused: str | None = None
        while True:
            try:
                frame = await track.recv()
            except MediaStreamError:  # muted for good; the session goes on without
                await _for_ever()
            self._active_at = asyncio.get_running_loop().time()
            assert isinstance(frame, AudioFrame), "offers with pictures are refused"
            try:
                await hear(self.session, ear.push(frame))
                refused = None
            except MossliveError as error:
                # A client cannot stop its sound at once: it is told once.
                api_error = as_api_error(error)
                if api_error.code != refused:
                    self.session.send_error(api_error)
                refused = api_error.code

    async def _until_idle(self) -> None:
        loop, idle_s = asyncio.get_running_loop(), self._server_state.settings.idle_s
        while (left_s := self._active_at + idle_s - loop.time()) > 0:
            await asyncio.sleep(left_s)
        raise SessionEnd(POLICY, "idle for too long")

    async def _delivered(self) -> None:
        await self.speaker.quiet()
        await self._send_queue.emptied()

    async def _goodbye(self, leave: SessionEnd) -> None:
        """There is no close code here: the last event says why."""
        if leave.code == NORMAL or not self._channel.done():
            return
        channel = self._channel.result()
        code = "internal_error" if leave.code == INTERNAL else "session_ended"
        last = error_event(ApiError(leave.reason, code, kind="server_error"))
        try:
            self._send(channel, json.dumps({"event_id": new_id("event")} | last))
            async with asyncio.timeout(_GOODBYE_S):
                while channel.bufferedAmount and channel.readyState == "open":
                    await asyncio.sleep(0.01)
        except (SessionEnd, TimeoutError):
            return


class _Microphone:
    """Frames of a track → samples at the session's rate."""

    def __init__(self) -> None:
        self._from_hz = 0
        self._resampler = ResampleStream(1, 1)

    def push(self, frame: AudioFrame) -> NDArray[np.float32]:
        if frame.sample_rate != self._from_hz:
            self._from_hz = frame.sample_rate
            self._resampler = ResampleStream(self._from_hz, WIRE_HZ)
        wave: NDArray[Any] = frame.to_ndarray()  # [1, n · channels] int16
        mono = wave.reshape(-1, frame.layout.nb_channels).mean(1, dtype=np.float32) / 32768
        return self._resampler.push(torch.from_numpy(mono)).numpy()


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()
