"""What rules of turn detection do on a session: waits, turns cut off, speculative replies.

The state machine of live talk runs on the probabilities of a voice activity detector. The answer of
the end-of-turn model counts from the frame on in which a live conversation would have it. Knows
neither files nor tables.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mosslive.bench.turns.recordings import KnownTurn, Session
from mosslive.talk import TurnSettings
from mosslive.talk.end_checks import CheckTimes, EndChecks
from mosslive.talk.smart_turn import EndModel
from mosslive.talk.turn_detection import Ended, Paused, TurnState, learn, step
from mosslive.talk.vad import FRAME_SAMPLES, VAD_HZ, VoiceActivity

_FRAME_S = FRAME_SAMPLES / VAD_HZ
Frames = NDArray[np.float32]  # [count, 512]


@dataclass(frozen=True)
class Outcome:
    """What became of one turn. Seconds after the end of its speech."""

    pauses: int
    cut_off: bool
    wait_s: float | None  # until its end was detected; None: it was cut off, or never ended
    begun_s: float | None  # when the adopted speculative reply began
    dropped: int  # speculative replies that were begun for nothing


@dataclass
class HeardSession:
    """The frames of a session, and what was computed about them once for all rules."""

    session: Session
    frames: Frames
    probabilities: list[float]
    answers: dict[tuple[int, int], float] = field(default_factory=dict)


class _Remembered:
    """An end-of-turn model that computes each answer once and knows how long it took."""

    def __init__(self, model: EndModel, answers: dict[tuple[int, int], float]) -> None:
        self._model, self._answers = model, answers
        self.heard = 0  # samples of the session so far
        self.seconds: list[float] = []

    def complete(self, wave: NDArray[np.float32]) -> float:
        key = (self.heard, len(wave))
        if key not in self._answers:
            began = time.thread_time()  # other processes do not count
            self._answers[key] = self._model.complete(wave)
            self.seconds.append(time.thread_time() - began)
        return self._answers[key]


def listen(session: Session, vad: VoiceActivity) -> HeardSession:
    vad.reset()
    count = len(session.wave) // FRAME_SAMPLES
    frames = session.wave[: count * FRAME_SAMPLES].reshape(count, FRAME_SAMPLES)
    return HeardSession(session, frames, [vad.probability(frame) for frame in frames])


def ask_ahead(heard: HeardSession, settings: TurnSettings, model: EndModel) -> list[float]:
    """Computes the answers that this rule needs. Returns the seconds of each new one."""
    remembered = _Remembered(model, heard.answers)
    _answers(heard, settings, remembered)
    return remembered.seconds


def outcomes(
    heard: HeardSession, settings: TurnSettings, model: EndModel | None, model_s: float
) -> list[Outcome]:
    """`model_s`: how long an answer takes."""
    answers: dict[int, list[tuple[int, float]]] = {}
    if model is not None:
        late = 1 + int(model_s / _FRAME_S)  # it is taken with the first frame after it
        for frame, one in _answers(heard, settings, _Remembered(model, heard.answers)):
            answers.setdefault(frame + late, []).append(one)
    state, ended, paused = TurnState(), list[int](), list[int]()
    for number, probability in enumerate(heard.probabilities):
        for position, complete in answers.get(number, ()):
            state = learn(state, position, complete)
        state, signals = step(state, probability, settings)
        for signal in signals:
            moment = (number + 1) * FRAME_SAMPLES
            if isinstance(signal, Ended):
                ended.append(moment)
            elif isinstance(signal, Paused):
                paused.append(moment)
    turns = heard.session.turns
    limits = [*(turn.start for turn in turns[1:]), len(heard.session.wave) + 1]
    return [_outcome(turn, until, ended, paused) for turn, until in zip(turns, limits, strict=True)]


def _outcome(turn: KnownTurn, until: int, ended: Sequence[int], paused: Sequence[int]) -> Outcome:
    ends = [moment for moment in ended if turn.start <= moment < until]
    begun = [moment for moment in paused if turn.start <= moment < until]
    early = any(moment < turn.end for moment in ends)
    last = next((moment for moment in ends if moment >= turn.end), None)
    adopted = next((moment for moment in reversed(begun) if last and moment <= last), None)
    wait_s = None if early or last is None else (last - turn.end) / VAD_HZ
    begun_s = None if adopted is None else (adopted - turn.end) / VAD_HZ
    return Outcome(turn.pauses, early, wait_s, begun_s, max(0, len(begun) - 1))


def _answers(
    heard: HeardSession, settings: TurnSettings, model: _Remembered
) -> list[tuple[int, tuple[int, float]]]:
    """(number of the frame, answer) of each question that this rule asks."""
    times = CheckTimes.of(settings)
    if times is None:
        return []
    checks, found = EndChecks(model, times, None), []
    for number, (frame, probability) in enumerate(
        zip(heard.frames, heard.probabilities, strict=True)
    ):
        model.heard = (number + 1) * FRAME_SAMPLES
        checks.push(frame, probability)
        found += [(number, one) for one in checks.take()]
    return found
