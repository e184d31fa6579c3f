"""The timing record of one turn: moments, costs, and the two numbers everybody asks for.

Moments are seconds on the conversation's clock; None: it did not come to that. Knows nothing of how
they come about.
"""

from dataclasses import asdict, dataclass
from typing import Any

from mosslive.rows import ReplyKind


@dataclass(frozen=True)
class TurnTiming:
    turn: int
    reply: ReplyKind
    # Moments, in the order in which they usually come.
    speech_end: float | None  # the last sample of the user's speech was here; None: text
    turn_detected: float  # the turn was known to be over
    heard: float | None = None  # all codes of the turn are exact
    last_row_in: float | None = None  # the engine has every row of the prompt
    first_row: float | None = None  # of the reply; a code, if it is speech
    first_chunk: float | None = None  # so many codes that sound can be made
    first_pcm: float | None = None  # the first sound is made
    first_out: float | None = None  # its first sample is handed to the transport
    last_row: float | None = None
    last_pcm: float | None = None
    # Costs: seconds of work on the codec's thread.
    hearing_s: float = 0.0  # of all sound of the turn
    finish_s: float = 0.0  # of making its codes exact at the end
    first_render_s: float = 0.0
    render_s: float = 0.0  # of all sound of the reply, the first included
    # Not a cost: rendering was so far ahead of the listener that it rested.
    rest_s: float = 0.0
    # Counts.
    codes_heard: int = 0
    codes_revised: int = 0  # of these, run through the language model a second time
    rows: int = 0  # of the reply
    audio_s: float = 0.0
    underruns: int = 0
    silence_s: float = 0.0
    speculative: bool = False  # the reply was begun before the turn was known to be over ...
    begun: float | None = None  # ... then

    @property
    def detection_s(self) -> float | None:
        """From the end of speech until the turn was known to be over; not part of `ttfa_s`."""
        return None if self.speech_end is None else self.turn_detected - self.speech_end

    @property
    def ttfa_s(self) -> float | None:
        """Time to first audio: from the last sample of the user's speech to the first sample handed
        to the transport, turn detection excluded."""
        return None if self.first_out is None else self.first_out - self.turn_detected

    @property
    def rtf(self) -> float | None:
        """Real-time factor: wall time of the whole reply, rest excluded, over the duration of its
        sound."""
        if self.last_pcm is None or not self.audio_s:
            return None
        began = self.turn_detected if self.begun is None else self.begun
        return (self.last_pcm - began - self.rest_s) / self.audio_s

    @property
    def stages(self) -> dict[str, float]:
        """How long each stage of the time to first audio took, in order; they add up to it. A
        stage that was over before the turn was (a reply begun on trial) took nothing."""
        moments = {
            "encoder finish": self.heard,
            "rows in": self.last_row_in,
            "prefill and first code": self.first_row,
            "codes of the first chunk": self.first_chunk,
            "first render": self.first_pcm,
            "hand out": self.first_out,
        }
        stages, before = {}, self.turn_detected
        for name, moment in moments.items():
            if moment is not None:
                stages[name] = max(0.0, moment - before)
                before = max(before, moment)
        return stages

    def document(self) -> dict[str, Any]:
        """For JSON: everything above, derived numbers included."""
        derived = {
            "detection_s": self.detection_s,
            "ttfa_s": self.ttfa_s,
            "rtf": self.rtf,
            "stages_s": self.stages,
        }
        return asdict(self) | derived


class Stopwatch:
    """Gathers one turn's record while it happens."""

    def __init__(self, turn: int, reply: ReplyKind) -> None:
        self.reply = reply
        self._found: dict[str, Any] = {"turn": turn, "reply": reply, "speech_end": None}

    def mark(self, moment: str, now: float) -> None:
        """The first time counts."""
        if self._found.get(moment) is None:
            self._found[moment] = now

    def has(self, name: str) -> bool:
        return name in self._found

    def set(self, **values: Any) -> None:
        self._found |= values

    def add(self, **amounts: float) -> None:
        for name, amount in amounts.items():
            self._found[name] = self._found.get(name, 0) + amount

    def read(self) -> TurnTiming:
        return TurnTiming(**self._found)
