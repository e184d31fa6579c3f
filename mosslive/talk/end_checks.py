"""When the end-of-turn model is asked, and its answers: in a pause, on a thread of its own.

Counts frames of speech and silence like `turn_detection`, but knows no turns: a front process has
none. So both sides ask at the same frames. The model works while further frames are classified; its
answer is taken with a later frame. One `EndChecks` per microphone, used by one thread at a time;
answers come from the threads of the model.
"""

import logging
import math
from collections import deque
from concurrent.futures import Executor, Future
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mosslive.talk.smart_turn import WINDOW_SAMPLES, EndModel
from mosslive.talk.turn_detection import SemanticEnd, TurnSettings, longest_silence_s
from mosslive.talk.vad import FRAME_SAMPLES, VAD_HZ

_WINDOW_FRAMES = WINDOW_SAMPLES // FRAME_SAMPLES
_BEFORE_FRAMES = 16  # 0.5 s before the first loud frame, as the model was trained
_log = logging.getLogger("mosslive.talk")


@dataclass(frozen=True)
class CheckTimes:
    """Plain numbers, so that another process can have them. In frames, except `on` and `off`."""

    on: float
    off: float
    silences: tuple[int, ...]  # lengths of silence at which the model is asked
    least_loud: int  # frames of speech; less is a click
    forget: int  # after so much silence the next speech is another turn

    @classmethod
    def of(cls, settings: TurnSettings) -> "CheckTimes | None":
        """None: the rule does not use the model."""
        if not isinstance(settings.end, SemanticEnd):
            return None
        silences = tuple(sorted({_frames(seconds) for seconds in settings.end.checks_s}))
        least, forget = _frames(settings.confirm_s), _frames(longest_silence_s(settings))
        return cls(settings.on, settings.off, silences, least, forget)


class EndChecks:
    def __init__(self, model: EndModel, times: CheckTimes, threads: Executor | None) -> None:
        """`threads`: where the model runs; None: in `push`."""
        self._model, self._times, self._threads = model, times, threads
        self._frames: deque[NDArray[np.float32]] = deque(maxlen=_WINDOW_FRAMES)
        self._kept = 0  # frames at the end of `_frames` that belong to the turn
        self._heard = 0  # frames in all
        self._loud = self._silent = 0  # frames of this turn, of this pause
        self._answers: deque[tuple[int, float]] = deque()  # a thread may add one at any time
        self._asked: Future[float] | None = None

    def push(self, frame: NDArray[np.float32], speech: float) -> None:
        """The next frame, [512], and its probability of speech."""
        times = self._times
        self._frames.append(frame)
        self._heard += 1
        self._kept = min(self._kept + 1, _WINDOW_FRAMES)
        if speech >= times.on:
            self._loud += 1
            self._silent = 0
        elif self._silent or speech < times.off:
            self._silent += 1
        if self._silent >= times.forget:
            self._loud = 0
        if not self._loud:
            self._kept = min(self._kept, _BEFORE_FRAMES)
        if self._silent in times.silences and self._loud >= times.least_loud:
            self._ask()

    def take(self) -> list[tuple[int, float]]:
        """New answers: the position up to which the model has heard, in samples, and the
        probability that the speaker has finished."""
        taken = []
        while self._answers:
            taken.append(self._answers.popleft())
        return taken

    def _ask(self) -> None:
        if self._asked and not self._asked.done():
            self._asked.cancel()  # it has not begun, or its answer is older than the next one
        heard = self._heard * FRAME_SAMPLES
        wave = np.concatenate([*self._frames][-self._kept :])
        if self._threads is None:
            self._answers.append((heard, self._model.complete(wave)))
            return

        def keep(asked: "Future[float]") -> None:
            if asked.cancelled():
                return
            if error := asked.exception():  # silence alone ends the turn
                _log.error("the end-of-turn model failed", exc_info=error)
            else:
                self._answers.append((heard, asked.result()))

        self._asked = self._threads.submit(self._model.complete, wave)
        self._asked.add_done_callback(keep)


def _frames(seconds: float) -> int:
    return max(1, math.ceil(round(seconds * VAD_HZ / FRAME_SAMPLES, 6)))
