"""One call: a peer connection and its session, from the offer to the last event.

The peer's microphone goes into the session at the session's rate, replies go out over the outgoing
track, events go both ways over the data channel `oai-events`. All tasks run on one event loop.
Knows connections and limits, not what events mean.
"""

import asyncio
import json
import time

from aiortc import (
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av import AudioFrame

from mosslive.errors import MossliveError
from mosslive.server.api_errors import ApiError, as_api_error, error_event, new_id
from mosslive.server.realtime.client_events.input_audio_buffer import append_samples
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
from mosslive.server.webrtc.event_inbox import Inbox, InboxFull
from mosslive.server.webrtc.microphone import PAUSE_S, Microphone
from mosslive.server.webrtc.offer import without_event_formats
from mosslive.server.webrtc.playback_events import PlaybackEvents

CHANNEL = "oai-events"
WIRE_HZ = 24_000  # of a session's PCM; aiortc resamples the track to 48 kHz for Opus
LEAD_S = 0.3  # of sound is sent to the track ahead of time, so that a busy moment causes no gap
CONNECT_S = 30.0  # from the answer until the peer is connected
_MOST_WAITING_S = 120.0  # of queued sound: one-shot replies come faster than they are played
_REASON_S = 3.0  # until the peer has the last event; a lost packet is sent again after 1 s
_CLOSE_S = 5.0
_CHANNEL_BYTES = 1 << 18  # in the data channel at once; the rest waits in the send queue


class Call:
    def __init__(self, server_state: ServerState, client: Client, ice: list[RTCIceServer]) -> None:
        """Raises `EngineFull` and the errors of the session's configuration."""
        self.id, self.owner = new_id("rtc"), client.owner
        settings = server_state.settings
        self._server_state = server_state
        self._send_queue = SendQueue(settings.send_queue_bytes)
        self._inbox = Inbox(settings.max_event_bytes)
        self._track = OutgoingTrack(WIRE_HZ, _MOST_WAITING_S)
        self._track.on_gap = server_state.metrics.gap
        playback = PlaybackEvents(self._track, self._send_queue.put, self._inbox.put_own)
        self._gap_reports = playback.gap_reports
        self.session = RealtimeSession(
            server_state.backend,
            client,
            playback.send,
            HANDLERS | playback.handlers(),
            server_state.metrics,
            lead_s=LEAD_S,
            gap_reports=self._gap_reports,
            expires_at=int(time.time() + settings.max_session_s),
        )
        playback.join(self.session)
        loop = asyncio.get_running_loop()
        self._channel: asyncio.Future[RTCDataChannel] = loop.create_future()
        self._microphone: asyncio.Future[MediaStreamTrack] = loop.create_future()
        self._ended: asyncio.Future[SessionEnd] = loop.create_future()
        self._active_at = loop.time()
        self._room = asyncio.Event()  # the data channel can take more
        # Without a list, aiortc uses a public STUN server.
        self._peer = RTCPeerConnection(RTCConfiguration(iceServers=ice))
        self._peer.on("track", self._on_track)
        self._peer.on("datachannel", self._on_channel)
        self._peer.on("connectionstatechange", self._on_state)

    async def answer(self, offer: str) -> str:
        """Returns the SDP of the answer. Raises `ApiError` if aiortc cannot answer the offer."""
        peer = self._peer
        try:
            await peer.setRemoteDescription(RTCSessionDescription(offer, "offer"))
            peer.addTrack(self._track)
            await peer.setLocalDescription(await peer.createAnswer())
        except Exception as error:  # aiortc raises many kinds for a malformed offer
            self.session.log.info("an offer failed: %r", error)
            raise ApiError("the SDP offer cannot be answered", "invalid_sdp", "sdp") from None
        return str(peer.localDescription.sdp)

    def hang_up(self) -> None:
        self._end(SessionEnd(NORMAL, "hung up"))

    async def run(self) -> None:
        """Runs until one side ends the call, then frees everything."""
        session, metrics, began = self.session, self._server_state.metrics, time.monotonic()
        metrics.sessions_total.labels("webrtc").inc()
        metrics.sessions.labels("webrtc").inc()
        try:
            session.log.info("session begins", extra={"call": self.id})
            end = await run_session(
                self._server_state,
                session,
                self._until_ended(),
                self._connected_in_time(),
                self._read(),
                self._write(),
                self._listen(),
                self._until_idle(),
                delivered=self._delivered,
            )
            session.log.info("session ends", extra={"code": end.code, "reason": end.reason})
            await session.close()  # nothing of the model waits for the peer
            await self._send_reason(end)
        finally:
            metrics.sessions.labels("webrtc").dec()
            metrics.session_seconds.observe(time.monotonic() - began)
            await self.close()

    async def close(self) -> None:
        """Idempotent."""
        self._track.clear()
        self._track.stop()
        self._gap_reports.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._peer.close()
        except TimeoutError:
            self.session.log.warning("a peer connection did not close in time")
        finally:
            await self.session.close()

    # Callbacks of the peer connection.

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
        channel.on("close", lambda: self._end(SessionEnd(NORMAL, CLIENT_LEFT)))
        self._channel.set_result(channel)

    def _on_message(self, message: str | bytes) -> None:
        self._active_at = asyncio.get_running_loop().time()
        self._inbox.put(message)

    def _on_state(self) -> None:
        if self._peer.connectionState in ("failed", "closed"):
            self._end(SessionEnd(NORMAL, CLIENT_LEFT))

    def _end(self, end: SessionEnd) -> None:
        if not self._ended.done():
            self._ended.set_result(end)

    # Tasks that run concurrently.

    async def _until_ended(self) -> None:
        raise await asyncio.shield(self._ended)

    async def _connected_in_time(self) -> None:
        await asyncio.sleep(CONNECT_S)
        if self._peer.connectionState != "connected":
            raise SessionEnd(POLICY, "no connection came about")
        await _forever()

    async def _read(self) -> None:
        session = self.session
        try:
            while True:
                try:
                    event = await self._inbox.get()
                except ApiError as api_error:
                    session.send_error(api_error)
                    continue
                await session.handle(without_event_formats(event))
                await asyncio.sleep(0)  # other sessions run between two of many waiting events
        except InboxFull:
            raise SessionEnd(POLICY, "events come faster than they can be handled") from None

    async def _write(self) -> None:
        channel = await asyncio.shield(self._channel)
        try:
            while True:
                text = await self._send_queue.get()
                assert isinstance(text, str), "this queue converts all events"
                async with asyncio.timeout(self._server_state.settings.send_timeout_s):
                    while channel.bufferedAmount > _CHANNEL_BYTES:
                        self._room.clear()
                        await self._room.wait()
                self._send(channel, text)
                self._send_queue.confirm(time.monotonic())
                await asyncio.sleep(0)  # a channel with room does not yield to other tasks
        except (SlowReader, TimeoutError):
            raise SessionEnd(POLICY, "the reader is too slow") from None

    def _send(self, channel: RTCDataChannel, text: str) -> None:
        if channel.readyState != "open":
            raise SessionEnd(NORMAL, CLIENT_LEFT)
        try:
            channel.send(text)
        except ValueError:  # longer than the peer accepts
            kind = json.loads(text)["type"]
            message = f"{kind} has {len(text)} bytes, more than the peer accepts in one message"
            channel.send(json.dumps(error_event(ApiError(message, "event_too_large"))))

    async def _listen(self) -> None:
        track = await asyncio.shield(self._microphone)
        microphone = Microphone(WIRE_HZ)
        refused: str | None = None  # the code of the last error
        while True:
            try:
                async with asyncio.timeout(PAUSE_S):
                    frame = await track.recv()
                self._active_at = asyncio.get_running_loop().time()
                assert isinstance(frame, AudioFrame), "check_offer refuses video"
                samples = microphone.push(frame)
            except TimeoutError:
                samples = microphone.pause(PAUSE_S)
            except MediaStreamError:  # the client stopped its track; the session goes on
                await _forever()
            if not len(samples):
                continue
            try:
                await append_samples(self.session, samples)
                refused = None
            except MossliveError as error:
                # A client cannot stop its microphone at once, so it gets one error, not many.
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
        await self._track.quiet()
        await self._send_queue.emptied()

    async def _send_reason(self, end: SessionEnd) -> None:
        """Sends why the session ended as the last event. WebRTC has no close code."""
        if end.code == NORMAL or not self._channel.done():
            return
        channel = self._channel.result()
        code = "internal_error" if end.code == INTERNAL else "session_ended"
        last = error_event(ApiError(end.reason, code, kind="server_error"))
        try:
            self._send(channel, json.dumps({"event_id": new_id("event")} | last))
            async with asyncio.timeout(_REASON_S):
                while channel.readyState == "open" and self._unacknowledged(channel):
                    await asyncio.sleep(0.01)
        except (SessionEnd, TimeoutError):
            return

    def _unacknowledged(self, channel: RTCDataChannel) -> bool:
        """Whether the peer may not have all events yet. Closing aborts the association, and what
        is under way is lost. `bufferedAmount` does not count what aiortc has sent."""
        # aiortc has no public count; without these names only its own buffer is waited for.
        queues = ("_outbound_queue", "_sent_queue")
        under_way = any(getattr(self._peer.sctp, name, None) for name in queues)
        return under_way or channel.bufferedAmount > 0


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()
