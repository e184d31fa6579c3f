"""Admission at the door: how many conversations the server holds at present.

The number is computed from the times of steps measured at start (`calibration.py`), by the model in
`capacity.py`. It is computed again, at most once a second, from how much slower steps have become
since then; it never exceeds the number of the start. Every session and every request for sound
counts as a whole conversation, however quiet it is: all of them may speak in the next moment, and
those inside keep their promise.

Runs on the event loop. Knows no protocol; does not end what is inside.
"""

import time
from collections.abc import Callable, Mapping

from mosslive.engine.step_costs import StepCosts
from mosslive.server.capacity import STAGES, Capacity, Promise, capacity
from mosslive.server.step_times import StepTimes

RETRY_S = 5  # a conversation lasts minutes
_EVERY_S = 1.0
_HALF_S = 3.0  # a change of speed counts by half after this time
_USUAL = 1.2  # times slower than at start: noise, and what the margin of the model is for
_MOST = 8.0  # times slower; more is a pause of the process, not a speed


class Admission:
    def __init__(
        self,
        times: Mapping[str, StepTimes],
        costs: Mapping[str, StepCosts],
        most: int,
        promise: Promise,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`times`: measured at start. `costs`: measured now. `most`: conversations that the
        settings allow."""
        self._times, self._costs, self._most, self._promise = times, costs, most, promise
        self._clock = clock
        self._slowdowns = dict.fromkeys(STAGES, 1.0)
        self._computed_at = clock()
        self.at_start = capacity(times, most, promise)
        self._now = self.at_start

    def capacity(self) -> Capacity:
        now = self._clock()
        elapsed_s = now - self._computed_at
        if elapsed_s >= _EVERY_S:
            self._computed_at = now
            for stage in STAGES:
                target = self._slowdown(stage, now)
                weight = 1 - 0.5 ** (elapsed_s / _HALF_S)
                self._slowdowns[stage] += weight * (target - self._slowdowns[stage])
            slower = {stage: max(1.0, one / _USUAL) for stage, one in self._slowdowns.items()}
            self._now = capacity(self._times, self._most, self._promise, slower)
        return self._now

    def refusal(self, inside: int) -> str | None:
        """Why no further conversation can be let in; None: it can. The first one always can."""
        held = self.capacity()
        if inside < max(1, held.conversations):
            return None
        return (
            f"This server {held.sentence()}; {inside} {'is' if inside == 1 else 'are'} active. "
            f"Try again in {RETRY_S} s."
        )

    def _slowdown(self, stage: str, now: float) -> float:
        """How many times longer steps take than at start; 1 without recent steps."""
        recent = self._costs[stage].fresh(now)
        ratios = [
            seconds / expected
            for size, seconds in recent.items()
            if (expected := self._times[stage].seconds(size)) > 0
        ]
        return min(_MOST, max(1.0, *ratios)) if ratios else 1.0
