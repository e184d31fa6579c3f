"""What has been heard: a clock of played samples.

Sound handed out is taken to be played at once and without pause, from when the first of it was
handed out; what the other side reports puts that right. Arithmetic only; times come in. Invariant:
0 ≤ heard ≤ handed, and neither runs backwards but by a report.
"""

import math

PIECE_S = 0.02  # sound is handed out in pieces not shorter than this, but for the last


class Playback:
    def __init__(self, rate_hz: int, lead_s: float | None) -> None:
        """`lead_s`: how far ahead of the ear sound is handed out, a piece or more. None: nobody
        plays it in real time, as when a file is written; what is handed out counts as heard."""
        self.rate_hz = rate_hz
        self.lead_s = lead_s
        self.handed = 0  # samples
        self.underruns = 0
        self.silence_s = 0.0  # the underruns together
        self._since: float | None = None  # from here on it plays without pause ...
        self._base = 0  # ... from this sample on

    def hand_out(self, samples: int, now: float) -> None:
        if not samples:
            return
        if self._since is None:
            self._since = now
        elif self.lead_s is not None and now > self.ends_at:
            self.underruns += 1
            self.silence_s += now - self.ends_at
            self._since, self._base = now, self.handed
        self.handed += samples

    def report(self, samples: int, now: float) -> None:
        """The other side says how much it has played of what it was handed; of nothing, it has
        nothing to say: that was about sound before."""
        if self._since is None:
            return
        self._since, self._base = now, max(0, min(samples, self.handed))

    def heard(self, now: float) -> int:
        """Samples played by now."""
        if self._since is None or self.lead_s is None:
            return self.handed
        played = self._base + round((now - self._since) * self.rate_hz)
        return max(self._base, min(self.handed, played))

    @property
    def ends_at(self) -> float:
        """When all that was handed out will have been played."""
        if self._since is None:
            return -math.inf
        return self._since + (self.handed - self._base) / self.rate_hz

    def room(self, now: float) -> int:
        """Samples that may be handed out now."""
        if self.lead_s is None or math.isinf(self.lead_s):
            return 1 << 62
        return max(0, round(self.lead_s * self.rate_hz) - (self.handed - self.heard(now)))

    def room_at(self, samples: int, now: float) -> float:
        """When so many samples, at most the lead, may be handed out."""
        short = samples - self.room(now)
        return now if short <= 0 else now + short / self.rate_hz
