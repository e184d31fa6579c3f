"""Between a session and its data channel: plays the session's audio and reports what was played.

Audio deltas go to the outgoing track instead of the data channel. When a reply is interrupted, its
item is truncated to what the track has sent: the server plays, so the client cannot know it. Adds
the `output_audio_buffer` events. Runs on the event loop of the session. Knows no connection.
"""

from collections.abc import Callable

import numpy as np

from mosslive.server.api_errors import ApiError, Event
from mosslive.server.gaps import GapReports, HeardGaps
from mosslive.server.realtime.server_events import output_audio_buffer as events
from mosslive.server.realtime.session import Handler, RealtimeSession
from mosslive.server.webrtc.audio_track import OutgoingTrack, Utterance

# Under their GA and beta names.
_DELTAS = ("response.output_audio.delta", "response.audio.delta")


class PlaybackEvents:
    def __init__(
        self, track: OutgoingTrack, put: Callable[[Event], None], handle: Callable[[Event], None]
    ) -> None:
        """`put`: sends an event to the client. `handle`: queues a client event of our own behind
        those that the client has sent."""
        self.track = track
        self._put, self._handle = put, handle
        self._utterances: dict[str, Utterance] = {}  # by response id
        self._last_id: str | None = None
        self._session: RealtimeSession | None = None
        track.on_started = self._started
        track.on_played = self._played
        track.on_stopped = self._stopped
        self.gap_reports = GapReports()
        track.on_over = self._over

    def join(self, session: RealtimeSession) -> None:
        """Sets the session. It is created later, because it needs `send`."""
        self._session = session

    def handlers(self) -> dict[str, Handler]:
        """Handlers of client events that exist only if the server plays the sound."""

        async def clear(session: RealtimeSession, event: Event) -> None:
            if not self._interrupt(self.track.clear()) and self._last_id:
                session.send(events.cleared(self._last_id))

        return {"output_audio_buffer.clear": clear}

    def send(self, event: Event) -> None:
        """Takes an event of the session for the client."""
        kind = event["type"]
        if kind in _DELTAS:
            self._play(event)
            return
        self._put(event)
        if kind == "response.done":
            self._done(event["response"]["id"], event["response"]["status"])
        elif kind == "input_audio_buffer.speech_started" and self._of_session.config.interrupts:
            self._interrupt(self.track.clear())

    def _play(self, event: Event) -> None:
        session, response_id = self._of_session, event["response_id"]
        utterance = self._utterances.get(response_id)
        if utterance is None:
            turn = session.responses.turn_of(response_id)
            utterance = Utterance(response_id, event["item_id"], turn)
            self._utterances[response_id] = utterance
        pcm = np.frombuffer(event["delta"], "<i2").astype(np.int16)
        if not self.track.play(utterance, pcm):
            utterance.muted = True
            session.send_error(
                ApiError(
                    "too much sound waits to be played; the rest of this response is dropped",
                    "output_audio_buffer_full",
                )
            )

    def _done(self, response_id: str, status: str) -> None:
        utterance = self._utterances.pop(response_id, None)
        if utterance is None:  # a response without sound
            self.gap_reports.end(response_id, HeardGaps())
            return
        utterance.whole = True
        if status in ("cancelled", "failed"):
            self._interrupt(self.track.drop(response_id))

    def _interrupt(self, utterances: list[Utterance]) -> bool:
        """Reports interrupted replies and truncates their items. Returns whether any was heard."""
        for one in utterances:
            if one.played:
                self._of_session.send(events.cleared(one.response_id))
            if any(item.id == one.item_id for item in self._of_session.items):
                self._handle(
                    {
                        "type": "conversation.item.truncate",
                        "item_id": one.item_id,
                        "content_index": 0,
                        "audio_end_ms": one.played * 1000 // self.track.rate_hz,
                    }
                )
        return any(one.played for one in utterances)

    def _over(self, utterance: Utterance) -> None:
        heard = HeardGaps(utterance.gaps, utterance.silence_s)
        self.gap_reports.end(utterance.response_id, heard)

    def _started(self, utterance: Utterance) -> None:
        self._last_id = utterance.response_id
        self._of_session.send(events.started(utterance.response_id))

    def _played(self, utterance: Utterance) -> None:
        session = self._of_session
        if utterance.turn is not None and session.responses.is_latest(utterance.turn):
            rate_hz = session.backend.rate_hz
            session.talk.played(utterance.played * rate_hz // self.track.rate_hz)

    def _stopped(self, utterance: Utterance) -> None:
        self._of_session.send(events.stopped(utterance.response_id))

    @property
    def _of_session(self) -> RealtimeSession:
        assert self._session, "a session sends nothing before `join`"
        return self._session
