"""From a session's events to the speaker, and from what it has played back to the session.

Sits between a session and its data channel: sound leaves the events here and is played; what the
user cut short is truncated to what was sent, as this side plays and the client cannot know. Adds
the `output_audio_buffer` events. Knows no connection.
"""

import base64
from collections.abc import Callable

import numpy as np

from mosslive.server.api_errors import ApiError, Event
from mosslive.server.realtime.session import Handler, RealtimeSession
from mosslive.server.webrtc.audio_track import OutgoingTrack, Utterance

# Under their GA and beta names.
_DELTAS = ("response.output_audio.delta", "response.audio.delta")


class PlaybackEvents:
    def __init__(
        self, speaker: OutgoingTrack, put: Callable[[Event], None], cut: Callable[[Event], None]
    ) -> None:
        """`put`: an event for the client. `cut`: an event as if from the client, to be handled
        after those that came before."""
        self.speaker = speaker
        self._put, self._cut = put, cut
        self._said: dict[str, Utterance] = {}  # by response
        self._last_id: str | None = None
        self._session: RealtimeSession | None = None
        speaker.on_started = self._started
        speaker.on_played = self._played
        speaker.on_stopped = self._stopped

    def join(self, session: RealtimeSession) -> None:
        """A session needs somebody to send to before it is there."""
        self._session = session

    def handlers(self) -> dict[str, Handler]:
        """Client events that only make sense where this side plays."""

        async def clear(session: RealtimeSession, event: Event) -> None:
            if not self._cut_short(self.speaker.clear()) and self._last_id:
                self._tell("cleared", self._last_id)

        return {"output_audio_buffer.clear": clear}

    def send(self, event: Event) -> None:
        """A session's event on its way to the client."""
        kind = event["type"]
        if kind in _DELTAS:
            self._say(event)
            return
        self._put(event)
        if kind == "response.done":
            self._done(event["response"]["id"], event["response"]["status"])
        elif kind == "input_audio_buffer.speech_started" and self._of_session.config.interrupts:
            self._cut_short(self.speaker.clear())

    def _say(self, event: Event) -> None:
        session, response_id = self._of_session, event["response_id"]
        utterance = self._said.get(response_id)
        if utterance is None:
            active = session.active
            paced = bool(
                active and active.id == response_id and response_id not in session.out_of_band
            )
            turn = session.active_turn if paced else None
            utterance = self._said[response_id] = Utterance(response_id, event["item_id"], turn)
        pcm = np.frombuffer(base64.b64decode(event["delta"]), "<i2").astype(np.int16)
        if not self.speaker.say(utterance, pcm):
            utterance.muted = True
            session.send_error(
                ApiError("too much sound waits to be played", "output_audio_buffer_full")
            )

    def _done(self, response_id: str, status: str) -> None:
        utterance = self._said.pop(response_id, None)
        if utterance is None:
            return
        utterance.whole = True
        if status in ("cancelled", "failed"):
            self._cut_short(self.speaker.drop(response_id))

    def _cut_short(self, utterances: list[Utterance]) -> bool:
        for one in utterances:
            if one.played:
                self._tell("cleared", one.response_id)
            if any(item.id == one.item_id for item in self._of_session.items):
                self._cut(
                    {
                        "type": "conversation.item.truncate",
                        "item_id": one.item_id,
                        "content_index": 0,
                        "audio_end_ms": one.played * 1000 // self.speaker.rate_hz,
                    }
                )
        return any(one.played for one in utterances)

    def _started(self, utterance: Utterance) -> None:
        self._last_id = utterance.response_id
        self._tell("started", utterance.response_id)

    def _played(self, utterance: Utterance) -> None:
        session = self._of_session
        if utterance.turn is not None and utterance.turn == session.active_turn:
            rate_hz = session.backend.rate_hz
            session.talk.played(utterance.played * rate_hz // self.speaker.rate_hz)

    def _stopped(self, utterance: Utterance) -> None:
        self._tell("stopped", utterance.response_id)

    def _tell(self, what: str, response_id: str) -> None:
        self._of_session.send({"type": f"output_audio_buffer.{what}", "response_id": response_id})

    @property
    def _of_session(self) -> RealtimeSession:
        assert self._session, "a session sends nothing while it is being made"
        return self._session
