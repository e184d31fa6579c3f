"""What conversations ask of the codec: requests as data, each with a deadline.

A deadline (`due`) is a moment of the service's clock: hear by then, or the listener has played
everything by then. Turns and replies are numbers that `CodecService.new_number` gives out. No
behaviour; `codec_service` answers the requests, `codec_streams` makes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor

from mosslive.codec.flow_stream import TailRule
from mosslive.codec.voice import Voice
from mosslive.errors import MossliveError

Value = TypeVar("Value")
NOW = float("-inf")  # due before anything that has a moment


@dataclass(frozen=True, eq=False)
class Hear:
    """Sound of a turn → the codes that it completes."""

    turn: int
    wave: Tensor  # [n] float32 on the CPU, at 16 kHz
    due: float


@dataclass(frozen=True, eq=False)
class EndTurn:
    """`FinishTurn` follows: a `Hear` that waits for companions is answered without codes."""

    turn: int


@dataclass(frozen=True, eq=False)
class FinishTurn:
    """The last sound of a turn → `HeardTurn`. The turn is closed."""

    turn: int
    wave: Tensor
    due: float


@dataclass(frozen=True, eq=False)
class PeekTurn:
    """The codes of a turn if it ended with this sound → `HeardTurn`, of which only `codes` counts.
    The turn goes on."""

    turn: int
    fork: int  # number of the turn that ends, for `CloseTurn`
    wave: Tensor
    due: float


@dataclass(frozen=True, eq=False)
class CloseTurn:
    """Frees a turn at once. Idempotent."""

    turn: int


@dataclass(frozen=True, eq=False)
class OpenReply:
    """Prepares a reply, so that its first codes need not wait for it."""

    reply: int
    voice: Voice
    seed: int  # of the vocoder's noise
    chunk: int  # codes
    tail: TailRule
    due: float
    apart: bool = False  # it may never be heard


@dataclass(frozen=True, eq=False)
class Render:
    """Codes of a reply → all the sound that they settle."""

    reply: OpenReply
    codes: Sequence[int]
    due: float
    last: bool = False  # no more codes come: all the sound that is left; the reply is closed
    apart: bool = False  # it may never be heard: it joins no step that is due before it


@dataclass(frozen=True, eq=False)
class AdoptReply:
    """A reply that was apart has a listener from now on."""

    reply: int


@dataclass(frozen=True, eq=False)
class CloseReply:
    """Frees a reply at once. Idempotent."""

    reply: int


@dataclass(frozen=True, eq=False)
class Call:
    """Other work that needs the codec: whole turns, voices, warm-up."""

    work: Callable[[], Any]
    due: float = NOW
    kind: str = ""  # for the health of the thread; empty: not counted


Request = (
    Hear
    | EndTurn
    | FinishTurn
    | PeekTurn
    | CloseTurn
    | OpenReply
    | Render
    | AdoptReply
    | CloseReply
    | Call
)


@dataclass(frozen=True)
class Done(Generic[Value]):
    value: Value
    cost_s: float  # from the start of its steps to their end, without waiting


class ThreadEnded(MossliveError):
    """The thread that runs the codec has ended by an error; no request is answered any more."""
