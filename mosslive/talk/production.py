"""How fast the sound of all conversations is produced, measured reply by reply.

A measurement is the time that some sound of a reply took over the duration of that sound, and the
number of replies in production at that moment. Time in which a reply rests, because it is far ahead
of its listener, does not count. A reply's first sound does not count either: it waits for the
prompt. Runs on one event loop. Knows no codec and no clock: moments are arguments.
"""

from collections import deque
from typing import NamedTuple

_SAMPLES = 256
_LEAST_S = 0.35  # least sound in one measurement; a chunk of five codes is 0.4 s
_MOST_TIMES = 10  # weight of one measurement


class Sample(NamedTuple):
    at: float  # moment
    replies: int  # in production at that moment
    cost: float  # seconds of work over seconds of sound


class Production:
    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self.replies = 0  # in production now, and not resting

    def begin(self) -> "Progress":
        """A reply begins; `Progress.end` must follow."""
        return Progress(self)


class Progress:
    """One reply in production."""

    def __init__(self, production: Production) -> None:
        self._production = production
        self._counted = True
        production.replies += 1
        self._since: float | None = None  # when the last measurement ended
        self._rested_s = 0.0  # since then
        self._sound_s = 0.0  # since then

    def made(self, sound_s: float, now: float) -> None:
        if not sound_s:
            return
        if self._since is None:
            self._since, self._rested_s = now, 0.0
            return
        self._sound_s += sound_s
        if self._sound_s >= _LEAST_S:
            cost = max(0.0, now - self._since - self._rested_s) / self._sound_s
            sample = Sample(now, max(1, self._production.replies), cost)
            # Codes that have accumulated are rendered at once: the weight is that of their sound.
            times = min(_MOST_TIMES, int(self._sound_s / _LEAST_S))
            self._production.samples.extend([sample] * times)
            self._since, self._rested_s, self._sound_s = now, 0.0, 0.0

    def rest(self, resting: bool) -> None:
        """The reply rests from now on, or produces sound again. Idempotent."""
        self._count(not resting)

    def rested(self, seconds: float) -> None:
        self._rested_s += seconds

    def end(self) -> None:
        """Idempotent."""
        self._count(False)

    def _count(self, counted: bool) -> None:
        self._production.replies += counted - self._counted
        self._counted = counted
