"""Sound from a microphone → the sound of turns, with signals between, in order.

Two segmenters: one detects speech and holds back enough sound to keep the first syllable; the other
is for push to talk. Runs on a VAD thread or on the event loop, one call at a time. Does not know
what becomes of a turn. Invariant: the joined output does not depend on how the sound was cut into
packets.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from mosslive.talk.end_checks import EndChecks
from mosslive.talk.turn_detection import (
    Ended,
    Paused,
    Resumed,
    Signal,
    Started,
    TurnSettings,
    TurnState,
    learn,
    step,
)
from mosslive.talk.vad import VAD_HZ, VoiceActivity
from mosslive.talk.vad_frames import GivenSpeech, LocalSpeech, SpeechSource


@dataclass(frozen=True)
class Sound:
    """The next piece of the turn in progress, at the rate of the input."""

    wave: Tensor  # [n]


TurnItem = Signal | Sound


class Segmenter(Protocol):
    rate_hz: int
    slow: bool  # `push` takes too long for the event loop

    @property
    def behind(self) -> bool:
        """Whether `push` has left frames for the next call."""
        ...

    def push(self, wave: Tensor, interrupting: bool) -> list[TurnItem]:
        """wave [n] float32. `interrupting`: a reply is being given. Positions in signals are
        samples at `rate_hz`. Stops at the end of a turn, because `interrupting` may change
        there."""
        ...

    def commit(self) -> list[TurnItem]:
        """Ends the turn in progress here."""
        ...

    def clear(self) -> None:
        """All sound so far belongs to no turn."""
        ...


class PushToTalkSegmenter:
    """Push to talk: all sound belongs to a turn, which `commit` ends."""

    slow = behind = False

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self._received = 0
        self._open = False

    def push(self, wave: Tensor, interrupting: bool) -> list[TurnItem]:
        first, self._received = self._received, self._received + len(wave)
        if not len(wave):
            return []
        started: list[TurnItem] = [] if self._open else [Started(first)]
        self._open = True
        return [*started, Sound(wave)]

    def commit(self) -> list[TurnItem]:
        ended: list[TurnItem] = [Ended(self._received)] if self._open else []
        self._open = False
        return ended

    def clear(self) -> None:
        self._open = False


class VadSegmenter:
    """Returns sound in whole frames of 32 ms: a turn begins and ends on their borders."""

    def __init__(
        self,
        speech: VoiceActivity | GivenSpeech,
        settings: TurnSettings,
        rate_hz: int,
        checks: EndChecks | None = None,
    ) -> None:
        """`speech`: a VAD that runs in `push`, or probabilities that come with the sound. `checks`:
        asks the end-of-turn model here; the answers may also come with the sound."""
        self.rate_hz = rate_hz
        self._settings = settings
        self._speech: SpeechSource = (
            speech if isinstance(speech, GivenSpeech) else LocalSpeech(speech, rate_hz, checks)
        )
        self.slow = self._speech.slow
        self._state = TurnState()
        self._held: deque[Tensor] = deque()  # at `rate_hz`, not returned yet
        self._held_from = 0
        self._received = 0
        self._no_sound = torch.zeros(0)

    def push(self, wave: Tensor, interrupting: bool) -> list[TurnItem]:
        length = wave.shape[0]  # `len` of a tensor takes ten times as long
        self._received += length
        if length:
            self._held.append(wave)
        self._speech.push(wave)
        items: list[TurnItem] = []
        while self.behind and not (items and isinstance(items[-1], Ended)):
            items += self._classify(self._speech.next(), interrupting)
        return items

    @property
    def behind(self) -> bool:
        return self._speech.waiting > 0

    def commit(self) -> list[TurnItem]:
        if not self._in_turn:
            return []
        rest = Sound(self._take(self._received))
        state = self._state
        self._end_turn()
        speech_end = state.speech_end if state.phase == "pausing" else state.heard
        return [*([rest] if len(rest.wave) else []), Ended(self._at_rate(speech_end))]

    def clear(self) -> None:
        self._end_turn()

    def _classify(self, probability: float, interrupting: bool) -> list[TurnItem]:
        was_in_turn = self._in_turn
        for heard, complete in self._speech.ends():
            self._state = learn(self._state, heard, complete)
        self._state, signals = step(self._state, probability, self._settings, interrupting)
        items: list[TurnItem] = []
        if signals and isinstance(signals[0], Started):
            first = self._at_rate(signals[0].first)
            self._take(first)
            items.append(Started(first))
        if was_in_turn or self._in_turn:
            items.append(Sound(self._take(self._at_rate(self._state.heard))))
        else:
            preroll = round(self._settings.preroll_s * VAD_HZ)
            self._take(self._at_rate(max(0, self._state.keep_from - preroll)))
        for signal in signals:
            if isinstance(signal, Ended):
                items.append(Ended(self._at_rate(signal.speech_end)))
            elif isinstance(signal, Paused):
                speech_end, left = self._at_rate(signal.speech_end), self._at_rate(signal.left)
                items.append(Paused(speech_end, left))
            elif isinstance(signal, Resumed):
                items.append(signal)
        return items

    @property
    def _in_turn(self) -> bool:
        return self._state.phase in ("speaking", "pausing")

    def _at_rate(self, position: int) -> int:
        return position * self.rate_hz // VAD_HZ

    def _end_turn(self) -> None:
        """The phase is quiet from here on. The frame in progress is classified later and may begin
        a turn, but no sound is returned twice."""
        heard = self._state.heard
        free = -(-self._held_from * VAD_HZ // self.rate_hz)
        pauses = self._state.pauses  # of the speaker, so they hold for the next turn
        self._state = TurnState(heard=heard, since=heard, free=max(heard, free), pauses=pauses)

    def _take(self, until: int) -> Tensor:
        """Held sound up to a position; empty if it was returned before."""
        pieces = []
        while self._held and self._held_from < until:
            piece = self._held.popleft()
            length, count = piece.shape[0], until - self._held_from
            if count < length:
                self._held.appendleft(piece[count:])
                piece, length = piece[:count], count
            pieces.append(piece)
            self._held_from += length
        if len(pieces) == 1:
            return pieces[0]
        return torch.cat(pieces) if pieces else self._no_sound
