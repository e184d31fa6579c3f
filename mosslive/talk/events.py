"""What a conversation tells its owner, in the order in which it happens.

Data only. `turn` counts the user's turns from 1; a reply carries the number of the turn it answers.
A reply nobody spoke before (`Talk.respond`) has a number of its own.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mosslive.rows import ReplyKind
from mosslive.talk.timing import TurnTiming

Stage = Literal["listening", "reply", "memory"]


@dataclass(frozen=True)
class SpeechStarted:
    """The user speaks; what the assistant was saying is cut off, and `ReplyInterrupted` follows."""

    turn: int
    position_s: float  # in the user's sound, pre-roll included


@dataclass(frozen=True)
class SpeechStopped:
    turn: int
    position_s: float  # of the last speech; the turn was decided later


@dataclass(frozen=True)
class TurnDetected:
    """The user's turn is over; where turns are answered, the answer is on its way."""

    turn: int


@dataclass(frozen=True)
class ReplyStarted:
    turn: int
    kind: ReplyKind


@dataclass(frozen=True)
class TextDelta:
    turn: int
    text: str


@dataclass(frozen=True, eq=False)
class AudioChunk:
    """Samples to play now, [n] float32 at the codec's rate; may exceed ±1 by 7 %."""

    turn: int
    first_sample: int  # of the reply
    pcm: NDArray[np.float32] = field(repr=False)


@dataclass(frozen=True)
class ReplyDone:
    """Everything was handed out; sound may still be playing, and be interrupted."""

    turn: int
    text: str
    codes: int
    stop: str  # why the model ended: stop, length, context, pages


@dataclass(frozen=True)
class ReplyInterrupted:
    """Only the heard part is remembered."""

    turn: int
    heard_codes: int
    heard_s: float


@dataclass(frozen=True)
class ContextTrimmed:
    """The oldest turns were forgotten to make room."""

    turns: int
    rows: int


@dataclass(frozen=True)
class TimingReady:
    timing: TurnTiming


@dataclass(frozen=True)
class TalkFault:
    """Something failed. The conversation goes on from what was heard before, unless `fatal`."""

    turn: int
    stage: Stage
    message: str
    fatal: bool = False
    error: Exception | None = field(default=None, repr=False, compare=False)


Event = (
    SpeechStarted
    | SpeechStopped
    | TurnDetected
    | ReplyStarted
    | TextDelta
    | AudioChunk
    | ReplyDone
    | ReplyInterrupted
    | ContextTrimmed
    | TimingReady
    | TalkFault
)
