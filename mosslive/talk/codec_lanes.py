"""The lanes of a device: CUDA streams with priorities, the steps that run on them, their durations.

On a CPU a step is over when it is started, and there is one lane in effect. Runs on the codec's
thread. Knows nothing of turns, replies or deadlines.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from mosslive.codec.graph_sets import URGENT_PRIORITY
from mosslive.engine.step_costs import StepCosts
from mosslive.talk.codec_plan import Lane, Stage, Step
from mosslive.talk.speech_codec import Running

# Lower numbers come first, -3 is the first that PyTorch gives. The language model's stream has -3,
# too: a listener waits longest for its first codes. While nobody does, it yields to first sounds
# (`CodecService` says when it has some).
PRIORITIES: dict[Lane, int] = {"first": URGENT_PRIORITY, "hear": -2, "render": 0}
# Before the first measurement: milliseconds of a step, and of each turn or reply in it.
_GUESS_MS = {"encode": (2.0, 0.1), "render_first": (20.0, 1.0), "render": (20.0, 0.8)}
_EARLY = 0.85  # few steps take less than this share of the usual time
_COST_OF: dict[Stage, str] = {
    "finish": "encode",
    "hear": "encode",
    "first": "render_first",
    "render": "render",
}


@dataclass(frozen=True, eq=False)
class RunningStep:
    step: Step
    running: Running
    began: float  # moment


class Lanes:
    def __init__(self, device: torch.device, clock: Callable[[], float]) -> None:
        self.concurrent = device.type == "cuda"
        self._device, self._clock = device, clock
        self._streams: dict[Lane, torch.cuda.Stream] = {}
        self._running: dict[Lane, RunningStep] = {}
        self.costs = {name: StepCosts(guess) for name, guess in _GUESS_MS.items()}
        self.seconds = dict.fromkeys(_GUESS_MS, 0.0)  # of all steps since the start

    @property
    def busy(self) -> set[Lane]:
        return set(self._running)

    def running(self, lane: Lane) -> Running | None:
        """The step that runs in a lane."""
        one = self._running.get(lane)
        return one.running if one else None

    def synchronise(self) -> None:
        """Waits until the device has done everything."""
        if self.concurrent and torch.cuda.is_available():
            torch.cuda.synchronize(self._device)

    def stream(self, lane: Lane) -> AbstractContextManager[Any]:
        """On a GPU: the lane's stream is the current one inside."""
        if not self.concurrent or not torch.cuda.is_available():
            return nullcontext()
        if lane not in self._streams:
            self._streams[lane] = torch.cuda.Stream(  # type: ignore[no-untyped-call]
                self._device, priority=PRIORITIES[lane]
            )
        return torch.cuda.stream(self._streams[lane])

    def began(self, step: Step, running: Running, at: float) -> None:
        self._running[step.lane] = RunningStep(step, running, at)

    def ended(self) -> list[RunningStep]:
        """The steps whose results are there; they no longer count as running."""
        ended = []
        for lane, one in list(self._running.items()):
            with self.stream(lane):  # a step of several parts launches the next one here
                if one.running.ready():
                    ended.append(self._running.pop(lane))
        return ended

    def end(self, one: RunningStep) -> float:
        """Records the duration of a step, and returns it."""
        now = self._clock()
        seconds, name = now - one.began, _COST_OF[one.step.stage]
        self.costs[name].observe(len(one.step.keys), seconds, now)
        self.seconds[name] += seconds
        return seconds

    def expected_end(self) -> float:
        """When the first of the running steps may end. The end of a turn has several parts, and
        each is launched when the one before is over: it may always be over."""
        return min(
            one.began if one.step.stage == "finish" else one.began + _EARLY * self._usual_s(one)
            for one in self._running.values()
        )

    def _usual_s(self, one: RunningStep) -> float:
        return self.costs[_COST_OF[one.step.stage]].seconds(len(one.step.keys), self._clock())
