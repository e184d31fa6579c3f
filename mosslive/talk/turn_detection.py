"""When a turn begins, pauses and ends: a pure state machine over speech probabilities.

Time is counted in samples at 16 kHz, so the result does not depend on how the sound was cut into
packets or when they arrived. Knows no clock, no network and no conversation.

| phase    | a frame is      | then                                          | signal  |
|----------|-----------------|-----------------------------------------------|---------|
| quiet    | loud            | rising, from this frame on                    |         |
| rising   | soft            | quiet: it was a click                         |         |
| rising   | else, confirm_s | speaking, from the first loud frame on        | Started |
| speaking | soft            | pausing, from this frame on                   |         |
| pausing  | loud            | speaking; the pause is remembered             | Resumed |
| pausing  | else, pause_s   | pausing                                       | Paused  |
| pausing  | else, end       | quiet                                         | Ended   |
| the same | longest_s       | quiet; the sound that follows is another turn | Ended   |

loud: probability ≥ on; soft: < off; between the two a frame continues the phase. A time in the
second column means: once the phase has lasted so long. Resumed comes only after Paused.

`learn` adds what a trained model says about the pause in progress (`end_checks.py`): whether the
turn sounds complete. `SemanticEnd` uses it; the other rules know silence only.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from mosslive.config import refuse
from mosslive.config.files import is_positive_number
from mosslive.talk.vad import FRAME_SAMPLES, VAD_HZ

Phase = Literal["quiet", "rising", "speaking", "pausing"]


@dataclass(frozen=True)
class FixedSilence:
    """A turn ends when silence has lasted `end_s`."""

    end_s: float = 0.5

    def __post_init__(self) -> None:
        _check_seconds(self, "end_s")


@dataclass(frozen=True)
class AdaptiveSilence:
    """A turn ends when silence has lasted clearly longer than this speaker's pauses.

    The wait is 1.25 times the longest of the last `window` pauses, plus `margin_s`; at least
    `least_s`, at most `most_s`, and at least `first_s` before there were so many pauses. The end of
    a turn counts as a pause of 0 s, so the wait shrinks for a fluent speaker. If a speaker
    continues within `most_s` after an end, that gap counts as a pause, so the next wait is longer.
    A speaker who has spoken for less than `brief_s` may only have begun ("Well, ..."): the wait is
    then at least 1.5 times `first_s`.
    """

    first_s: float = 0.6
    least_s: float = 0.35
    most_s: float = 1.5
    margin_s: float = 0.1
    window: int = 8
    brief_s: float = 0.5

    def __post_init__(self) -> None:
        for name in ("first_s", "least_s", "most_s", "margin_s", "brief_s"):
            _check_seconds(self, name)
        if not self.least_s <= self.first_s <= self.most_s:
            raise refuse("first_s", self.first_s, f"{self.least_s} to {self.most_s} s")
        if type(self.window) is not int or self.window < 1:
            raise refuse("window", self.window, "1 or more pauses")


@dataclass(frozen=True)
class SemanticEnd:
    """A turn ends soon if a trained model finds it complete, and by adaptive silence if not.

    The model is asked when silence has lasted `checks_s`, each time anew. While its latest answer
    in this pause is at least `sure`, silence of `soon_s` ends the turn. Otherwise, without an
    answer, and for a speaker who has spoken for less than `brief_s`, `otherwise` does. It waits
    longer than the adaptive rule alone: complete turns do not get there.
    """

    sure: float = 0.5
    soon_s: float = 0.28
    brief_s: float = 1.0  # a few words sound complete too easily
    checks_s: tuple[float, ...] = (0.12, 0.25, 0.5, 1.0)
    otherwise: AdaptiveSilence = field(default_factory=lambda: AdaptiveSilence(0.9, 0.7))

    def __post_init__(self) -> None:
        _check_seconds(self, "soon_s")
        _check_seconds(self, "brief_s")
        if not is_positive_number(self.sure) or self.sure > 1:
            raise refuse("sure", self.sure, "above 0 and at most 1")
        times = self.checks_s
        if not isinstance(times, tuple) or not times or not all(map(is_positive_number, times)):
            raise refuse("checks_s", times, "a tuple of seconds above 0")
        if not isinstance(self.otherwise, AdaptiveSilence):
            raise refuse("otherwise", self.otherwise, "AdaptiveSilence")


EndRule = FixedSilence | AdaptiveSilence | SemanticEnd


@dataclass(frozen=True)
class TurnSettings:
    on: float = 0.5
    off: float = 0.35
    confirm_s: float = 0.1  # shorter sounds are clicks
    interrupt_s: float = 0.2  # the same while a reply is given: a false interruption costs more
    preroll_s: float = 0.3  # sound before the first loud frame that belongs to the turn
    pause_s: float = 0.2  # silence after which a speculative reply may begin
    longest_s: float = 120.0  # a turn ends here at the latest
    end: EndRule = field(default_factory=AdaptiveSilence)

    def __post_init__(self) -> None:
        names = ("confirm_s", "interrupt_s", "preroll_s", "pause_s", "longest_s")
        for name in names:
            _check_seconds(self, name)
        numbers = is_positive_number(self.off) and is_positive_number(self.on)
        if not numbers or not self.off <= self.on <= 1:
            raise refuse("on, off", (self.on, self.off), "0 < off ≤ on ≤ 1")
        if not isinstance(self.end, FixedSilence | AdaptiveSilence | SemanticEnd):
            raise refuse("end", self.end, "FixedSilence, AdaptiveSilence or SemanticEnd")

    @property
    def adaptive(self) -> AdaptiveSilence | None:
        """The rule that follows the speaker's pauses, if one does."""
        rule = self.end.otherwise if isinstance(self.end, SemanticEnd) else self.end
        return rule if isinstance(rule, AdaptiveSilence) else None


@dataclass(frozen=True)
class Started:
    first: int  # where the turn's sound begins, pre-roll included


@dataclass(frozen=True)
class Paused:
    speech_end: int
    left: int  # samples of silence until the turn ends


@dataclass(frozen=True)
class Resumed:
    pass


@dataclass(frozen=True)
class Ended:
    speech_end: int  # the last sample of speech; the silence after it belongs to the turn too


Signal = Started | Paused | Resumed | Ended


@dataclass(frozen=True)
class TurnState:
    """Positions are samples at 16 kHz from the start of the stream."""

    phase: Phase = "quiet"
    heard: int = 0  # end of the last frame
    since: int = 0  # start of the phase
    first: int = 0  # start of the turn, pre-roll included ...
    began: int = 0  # ... and without
    free: int = 0  # sound from here on belongs to no turn yet
    speech_end: int = -1 << 60  # of the latest speech
    signalled: bool = False  # Paused was sent for this pause
    complete: float | None = None  # the model's latest answer about this pause
    pauses: tuple[float, ...] = ()  # seconds, the latest ones, for `AdaptiveSilence`

    @property
    def keep_from(self) -> int:
        """Sound before this position is not needed any more, except for the pre-roll."""
        return self.since if self.phase == "rising" else self.heard


def step(
    state: TurnState, probability: float, settings: TurnSettings, interrupting: bool = False
) -> tuple[TurnState, list[Signal]]:
    """One frame of 512 samples. `interrupting`: a reply is being given."""
    begin, end = state.heard, state.heard + FRAME_SAMPLES
    loud, soft = probability >= settings.on, probability < settings.off
    state = replace(state, heard=end)
    if state.phase == "quiet":
        return (replace(state, phase="rising", since=begin) if loud else state), []
    if state.phase == "rising":
        if soft:
            return replace(state, phase="quiet", since=begin), []
        confirm_s = settings.interrupt_s if interrupting else settings.confirm_s
        if end - state.since < confirm_s * VAD_HZ:
            return state, []
        return _start(state, settings)
    if end - state.first >= settings.longest_s * VAD_HZ:
        last = end if state.phase == "speaking" else state.speech_end
        return _end(state, last, settings)
    if state.phase == "speaking":
        if soft:
            pausing = replace(state, phase="pausing", since=begin, speech_end=begin)
            return replace(pausing, signalled=False, complete=None), []
        return state, []
    silence = end - state.since
    if loud:
        resumed = replace(state, phase="speaking", since=begin)
        if not state.signalled:
            return resumed, []  # as short as the gap between two words
        pauses = _remember(state.pauses, (begin - state.since) / VAD_HZ, settings)
        return replace(resumed, pauses=pauses), [Resumed()]
    paused: list[Signal] = []
    needed = end_s(state, settings) * VAD_HZ
    if not state.signalled and silence >= settings.pause_s * VAD_HZ:
        state = replace(state, signalled=True)
        paused = [Paused(state.speech_end, max(0, round(needed) - silence))]
    if silence >= needed:
        state, ended = _end(state, state.speech_end, settings)
        return state, paused + ended
    return state, paused


def learn(state: TurnState, heard: int, complete: float) -> TurnState:
    """What the model says about the sound up to the position `heard`. Without effect if the speaker
    has continued since."""
    asked_in_pause = state.phase == "pausing" and heard > state.since
    return replace(state, complete=complete) if asked_in_pause else state


def end_s(state: TurnState, settings: TurnSettings) -> float:
    """How long the silence after the latest speech must last to end the turn."""
    rule, pauses = settings.end, state.pauses
    if isinstance(rule, FixedSilence):
        return rule.end_s
    if isinstance(rule, SemanticEnd):
        brief = state.speech_end - state.began < rule.brief_s * VAD_HZ
        if state.complete is not None and state.complete >= rule.sure and not brief:
            return rule.soon_s
        rule = rule.otherwise
    least_s = rule.least_s if len(pauses) == rule.window else rule.first_s
    if state.speech_end - state.began < rule.brief_s * VAD_HZ:
        least_s = 1.5 * rule.first_s
    return min(rule.most_s, max(least_s, 1.25 * max(pauses, default=0.0) + rule.margin_s))


def longest_silence_s(settings: TurnSettings) -> float:
    """After so much silence (every frame soft) no turn is in progress."""
    rule = settings.end
    if isinstance(rule, SemanticEnd):
        return max(rule.soon_s, rule.otherwise.most_s)
    return rule.end_s if isinstance(rule, FixedSilence) else rule.most_s


def _start(state: TurnState, settings: TurnSettings) -> tuple[TurnState, list[Signal]]:
    preroll = round(settings.preroll_s * VAD_HZ)
    first = max(0, state.free, state.since - preroll)
    gap_s = (state.since - state.speech_end) / VAD_HZ
    pauses = state.pauses
    if settings.adaptive and gap_s <= settings.adaptive.most_s:
        pauses = _remember(pauses, gap_s, settings)  # the speaker had not finished
    started = replace(state, phase="speaking", first=first, began=state.since, pauses=pauses)
    return started, [Started(first)]


def _end(
    state: TurnState, speech_end: int, settings: TurnSettings
) -> tuple[TurnState, list[Signal]]:
    ended = replace(
        state,
        phase="quiet",
        since=state.heard,
        free=state.heard,
        speech_end=speech_end,
        pauses=_remember(state.pauses, 0.0, settings),
    )
    return ended, [Ended(speech_end)]


def _remember(
    pauses: tuple[float, ...], pause_s: float, settings: TurnSettings
) -> tuple[float, ...]:
    if settings.adaptive is None:
        return ()
    return (*pauses, pause_s)[-settings.adaptive.window :]


def _check_seconds(owner: object, name: str) -> None:
    value = getattr(owner, name)
    if value != 0 and not is_positive_number(value):
        raise refuse(name, value, "0 or more seconds")
