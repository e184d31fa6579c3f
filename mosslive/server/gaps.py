"""Gaps a client hears that plays each reply as it comes.

Playing begins when the first sound of a reply is sent and goes on in real time. Sound that is sent
after everything before it has been played ends a gap. Where the server plays (WebRTC) the track
itself counts, see `webrtc/speaker.py`. Knows when sound is sent, not how.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from mosslive.server.api_errors import Event
from mosslive.server.realtime.formats import BETA_NAMES, AudioFormat

_DELTAS = ("response.output_audio.delta", "response.audio.delta")  # GA and beta
_FORMATS = {name: AudioFormat(kind) for kind, name in BETA_NAMES.items()}


class Gaps:
    """Of one client."""

    def __init__(
        self, on_gap: Callable[[float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`on_gap`: called with the seconds of each gap."""
        self._on_gap, self._clock = on_gap, clock
        self._ends_at: dict[str, float] = {}  # by reply: when all that was sent has been played
        self._formats: dict[str, AudioFormat] = {}

    def sent(self, reply: str, seconds: float) -> None:
        """So much more of a reply's sound was sent just now."""
        now = self._clock()
        ends_at = self._ends_at.get(reply, now)
        if now > ends_at:
            self._on_gap(now - ends_at)
        self._ends_at[reply] = max(now, ends_at) + seconds

    def over(self, reply: str) -> None:
        self._ends_at.pop(reply, None)
        self._formats.pop(reply, None)

    def of_event(self, event: Event) -> Callable[[], None] | None:
        """What to call when this server event of a session was sent."""
        kind = event["type"]
        if kind == "response.created":
            self._formats[event["response"]["id"]] = _format(event["response"])
        elif kind == "response.done":
            return partial(self.over, event["response"]["id"])
        elif kind in _DELTAS:
            reply, delta = event["response_id"], event["delta"]
            form = self._formats.get(reply, AudioFormat())
            count = len(delta) // 4 * 3 - delta.count("=", -2)  # bytes behind base64
            return partial(self.sent, reply, count / form.bytes_per_sample / form.rate_hz)
        return None


def _format(response: dict[str, Any]) -> AudioFormat:
    """Of the sound of a response, as GA or beta describe it."""
    if "output_audio_format" in response:
        return _FORMATS[response["output_audio_format"]]
    return AudioFormat(response["audio"]["output"]["format"]["type"])
