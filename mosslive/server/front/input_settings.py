"""What a front must know of a session to read its sound: the format, and whether to run the VAD.

The core tells a front before the WebSocket is accepted and after each `session.update`; the front
reads nothing between an update and the answer. So both agree from which sample on new settings
hold. Runs on the event loop of the core. Does not know the queue.
"""

from collections.abc import Callable
from typing import Any

from starlette.types import Scope

from mosslive.server.front.client_events import UPDATE
from mosslive.server.realtime.session import RealtimeSession
from mosslive.talk.turn_detection import longest_silence_s

INPUT = "mosslive.input"  # extension: a function that sends these settings to the front


class InputSettings:
    """Of one session. Without a front it does nothing."""

    def __init__(self, scope: Scope, session: RealtimeSession) -> None:
        send: Callable[[dict[str, Any]], None] | None = scope.get("extensions", {}).get(INPUT)
        self._send, self._session = send, session
        self._stream = 0
        self._key: object = None  # a change of it starts a new stream of frames
        self.send()

    def handled(self, event: object) -> None:
        """Call it after each client event that the front has not converted."""
        if isinstance(event, dict) and event.get("type") == UPDATE:
            self.send()

    def send(self) -> None:
        if self._send is None:
            return
        session = self._session
        turns, form = session.talk.settings.turns, session.config.input_format
        if (turns, form.rate_hz) != self._key:
            self._key = turns, form.rate_hz
            self._stream += 1
        hears = session.talk.can_hear  # otherwise each append gets an error
        vad = session.backend.make_vad
        self._send(
            {
                "format": form.kind,
                "stream": self._stream if turns and hears else None,
                "vad": f"{vad.__module__}:{vad.__qualname__}",
                "soft_below": turns.off if turns else 0.0,
                "quiet_s": longest_silence_s(turns) if turns else 0.0,
                "loud_from": turns.on if turns else 1.0,
                "steady_s": max(turns.confirm_s, turns.interrupt_s) if turns else 0.0,
            }
        )
