"""The playback clock: how many samples of a reply the listener has heard.

Sound is assumed to play at once and without pause from the moment its first sample is sent; reports
of the client correct that. Arithmetic only; moments are arguments. Invariant: 0 ≤ heard ≤ sent, and
neither decreases except by a report.
"""

import math

PIECE_S = 0.02  # sound is sent in pieces not shorter than this, except the last


class Playback:
    def __init__(self, rate_hz: int, lead_s: float | None) -> None:
        """`lead_s`: how far ahead of the listener sound is sent, `PIECE_S` or more. None: sound is
        not played in real time, for example written to a file; sound that is sent counts as
        heard."""
        self.rate_hz = rate_hz
        self.lead_s = lead_s
        self.sent = 0  # samples
        self.underruns = 0
        self.silence_s = 0.0  # of all underruns together
        self._since: float | None = None  # sound plays without pause from this moment on ...
        self._base = 0  # ... and from this sample on

    def send(self, samples: int, now: float) -> None:
        if not samples:
            return
        if self._since is None:
            self._since = now
        elif self.lead_s is not None and now > self.ends_at:
            self.underruns += 1
            self.silence_s += now - self.ends_at
            self._since, self._base = now, self.sent
        self.sent += samples

    def report(self, samples: int, now: float) -> None:
        """The client reports how much it has played. Ignored before the first sample is sent: the
        report is then about earlier sound."""
        if self._since is None:
            return
        self._since, self._base = now, max(0, min(samples, self.sent))

    def heard(self, now: float) -> int:
        """Samples played by now."""
        if self._since is None or self.lead_s is None:
            return self.sent
        played = self._base + round((now - self._since) * self.rate_hz)
        return max(self._base, min(self.sent, played))

    @property
    def ends_at(self) -> float:
        """When all sound that was sent will have been played."""
        if self._since is None:
            return -math.inf
        return self._since + (self.sent - self._base) / self.rate_hz

    def room(self, now: float) -> int:
        """Samples that may be sent now."""
        if self.lead_s is None or math.isinf(self.lead_s):
            return 1 << 62
        return max(0, round(self.lead_s * self.rate_hz) - (self.sent - self.heard(now)))

    def room_at(self, samples: int, now: float) -> float:
        """When so many samples, at most the lead, may be sent."""
        short = samples - self.room(now)
        return now if short <= 0 else now + short / self.rate_hz
