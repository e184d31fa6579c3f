"""The idle timeout of turn detection: counts the silence after the last reply.

Watches the events that a session sends. It assumes that the sound of a reply is played in real time
from the moment its first delta is sent; the count starts at the end of that. A timer of the event
loop calls `on_idle`. Knows events and a clock, not what follows the timeout.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any

from mosslive.server.api_errors import Event
from mosslive.server.realtime.formats import AudioFormat
from mosslive.talk.playback import Playback


class IdleTimer:
    def __init__(self) -> None:
        self.on_idle: Callable[[float], None] = lambda idle_s: None  # seconds of silence
        self._limit_s: float | None = None
        self._since: float | None = None  # the end of the last reply's playback
        self._format = AudioFormat()
        self._playback = Playback(self._format.rate_hz, math.inf)  # of the reply
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, detection: dict[str, Any] | None) -> None:
        """Sets the timeout. `detection`: of the session; without `create_response` there is no
        timeout."""
        given = detection or {}
        timeout_ms = given.get("idle_timeout_ms") if given.get("create_response") else None
        self._limit_s = timeout_ms / 1000 if timeout_ms else None
        self._arm()

    def saw(self, event: Event) -> None:
        """Notes an event that is sent to the client, in GA names."""
        match event["type"]:
            case "response.created" if event["response"]["conversation_id"]:
                self.stop()
                self._format = AudioFormat(event["response"]["audio"]["output"]["format"]["type"])
                self._playback = Playback(self._format.rate_hz, math.inf)
            case "response.output_audio.delta":
                count = len(event["delta"])
                self._playback.send(count // self._format.bytes_per_sample, _now())
            case "response.done" if event["response"]["conversation_id"]:
                whole = event["response"]["status"] in ("completed", "incomplete")
                self._since = max(_now(), self._playback.ends_at) if whole else _now()
                self._arm()
            case "input_audio_buffer.speech_started":
                self.stop()

    def stop(self) -> None:
        """Stops the count: the user speaks, or a response begins."""
        self._since = None
        self._arm()

    def restart(self) -> None:
        """Counts from now."""
        self._since = _now()
        self._arm()

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._since is not None and self._limit_s is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._since + self._limit_s, self._fire)

    def _fire(self) -> None:
        idle_s, self._since, self._timer = self._limit_s or 0.0, None, None
        self.on_idle(idle_s)


def _now() -> float:
    return asyncio.get_running_loop().time()
