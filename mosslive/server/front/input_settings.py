"""What a front must know of a session to read its sound: the format, and whether to run the VAD.

The core tells a front before the WebSocket is accepted and after each `session.update`; the front
reads nothing between an update and the answer. So both agree from which sample on new settings
hold. Runs on the event loop of the core. Does not know the queue.
"""

from collections.abc import Callable
from dataclasses import astuple
from typing import Any

from starlette.types import Scope

from mosslive.server.front.client_events import UPDATES
from mosslive.server.realtime.session import RealtimeSession
from mosslive.talk.end_checks import CheckTimes
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
        if isinstance(event, dict) and event.get("type") in UPDATES:
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
        vad, end_model = session.backend.make_vad, session.backend.make_end_model
        times = CheckTimes.of(turns) if turns else None
        self._send(
            {
                "format": form.kind,
                "stream": self._stream if turns and hears else None,
                "vad": _name(vad),
                "soft_below": turns.off if turns else 0.0,
                "quiet_s": longest_silence_s(turns) if turns else 0.0,
                "loud_from": turns.on if turns else 1.0,
                "steady_s": max(turns.confirm_s, turns.interrupt_s) if turns else 0.0,
                "end_model": _name(end_model) if end_model and times else None,
                "end_checks": astuple(times) if times else None,
            }
        )


def _name(made: Callable[[], object]) -> str:
    """Module and class, for another process."""
    return f"{made.__module__}:{made.__qualname__}"
