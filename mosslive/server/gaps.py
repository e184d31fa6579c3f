"""Counts the gaps that a client hears, where the sound is sent.

The one source of gaps for metrics, timing records and timing events. `Gaps` is for a client that
plays each reply as it arrives: playback of a reply is assumed to start when its first audio is sent
and to run in real time, and audio that is sent after all earlier audio has been played ends a gap.
Over WebRTC the server paces playback and the track counts gaps itself (`webrtc/audio_track.py`).
`GapReports` hands out the gaps of a reply when it is over, on every transport.

Runs on the event loop. Knows when audio is sent; does not know the transport.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from mosslive.server.api_errors import Event
from mosslive.server.realtime.formats import BETA_NAMES, AudioFormat
from mosslive.talk.playback import Playback

_DELTAS = ("response.output_audio.delta", "response.audio.delta")  # GA and beta
_FORMATS = {name: AudioFormat(kind) for kind, name in BETA_NAMES.items()}
_KEPT = 16  # replies that are over and that no one has asked for


class HeardGaps(NamedTuple):
    """The gaps in one reply."""

    gaps: int = 0
    silence_s: float = 0.0


class GapReports:
    """Reports the gaps of a reply to its caller once all of its sound was sent."""

    def __init__(self) -> None:
        self._over: dict[str, HeardGaps] = {}  # by reply, the latest last
        self._asked: dict[str, Callable[[HeardGaps], None]] = {}

    def end(self, reply: str, heard: HeardGaps) -> None:
        """This reply is over."""
        if call := self._asked.pop(reply, None):
            call(heard)
            return
        self._over[reply] = heard
        if len(self._over) > _KEPT:
            del self._over[next(iter(self._over))]

    def when_over(self, reply: str, call: Callable[[HeardGaps], None]) -> None:
        """Calls at once if the reply is over."""
        if reply in self._over:
            call(self._over.pop(reply))
        else:
            self._asked[reply] = call

    def close(self, heard: Callable[[str], HeardGaps] = lambda reply: HeardGaps()) -> None:
        """The client is gone: what was asked for is told as far as it is known."""
        for reply in list(self._asked):
            self.end(reply, heard(reply))


class Gaps:
    """The gaps of one client."""

    def __init__(
        self, on_gap: Callable[[float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`on_gap`: called with the seconds of each gap."""
        self._on_gap, self._clock = on_gap, clock
        self._playbacks: dict[str, Playback] = {}  # by reply
        self._formats: dict[str, AudioFormat] = {}
        self.reports = GapReports()

    def sent(self, reply: str, samples: int, rate_hz: int, now: float | None = None) -> None:
        """Records that this many samples of a reply's audio were sent. `now`: None: at this
        moment."""
        playback = self._playbacks.setdefault(reply, Playback(rate_hz, math.inf))
        before_s = playback.silence_s
        playback.send(samples, self._clock() if now is None else now)
        if playback.silence_s > before_s:
            self._on_gap(playback.silence_s - before_s)

    def end(self, reply: str, now: float | None = None) -> None:
        """Reports a reply that has ended, and forgets it."""
        self.reports.end(reply, self._heard(reply))
        self._playbacks.pop(reply, None)
        self._formats.pop(reply, None)

    def close(self) -> None:
        """The client is gone."""
        self.reports.close(self._heard)

    def _heard(self, reply: str) -> HeardGaps:
        playback = self._playbacks.get(reply)
        return HeardGaps(playback.underruns, playback.silence_s) if playback else HeardGaps()

    def of_event(self, event: Event) -> Callable[[float], None] | None:
        """Returns the function to call with the time at which this server event was sent, if
        any."""
        kind = event["type"]
        if kind == "response.created":
            self._formats[event["response"]["id"]] = _format(event["response"])
        elif kind == "response.done":
            return partial(self.end, event["response"]["id"])
        elif kind in _DELTAS:
            reply, delta = event["response_id"], event["delta"]
            form = self._formats.get(reply, AudioFormat())
            return partial(self.sent, reply, len(delta) // form.bytes_per_sample, form.rate_hz)
        return None


def _format(response: dict[str, Any]) -> AudioFormat:
    """The audio format of a response object, GA or beta."""
    if "output_audio_format" in response:
        return _FORMATS[response["output_audio_format"]]
    return AudioFormat(response["audio"]["output"]["format"]["type"])
