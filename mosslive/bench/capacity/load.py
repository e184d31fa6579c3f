"""The load of a capacity benchmark: who calls when, and what is said. Pure functions of a seed.

A level has N callers, and each has at most one call at a time, so a level never has more than N
conversations. An idle caller calls after an exponentially distributed time, so calls arrive as a
Poisson process whose rate follows the number of idle callers. The first calls are a Poisson process
over the ramp, given that all callers call once in it. Knows no network and no clock: times are
seconds from the start of a level.
"""

from dataclasses import dataclass
from random import Random

from mosslive.config import SECONDS_PER_CODE, refuse

MOST_TURNS = 8  # of a call
RAMP_SHARE, MOST_RAMP_S = 0.25, 10.0  # of the measured time


@dataclass(frozen=True)
class Load:
    """Distributions. Lengths are uniform between two bounds, numbers of turns geometric."""

    question_s: tuple[float, float] = (2.0, 6.0)
    reply_s: tuple[float, float] = (4.0, 12.0)  # the most; a model may end its reply earlier
    turns: float = 3.0  # mean number of questions in a call
    interrupted: float = 0.1  # share of replies that the caller interrupts by the next question
    left: float = 0.05  # share of calls that end in the middle of their last reply
    pause_s: float = 0.7  # mean time between a reply and the next question
    between_s: float = 1.0  # mean time between two calls of a caller
    questions: int = 16  # different questions
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("question_s", 0.5), ("reply_s", SECONDS_PER_CODE)):
            low, high = getattr(self, name)
            if not least <= low <= high <= 60:
                allowed = f"two numbers from {least:g} to 60, the smaller one first"
                raise refuse(name, f"{low:g},{high:g}", allowed)
        for name in ("interrupted", "left"):
            if not 0 <= getattr(self, name) <= 1:
                raise refuse(name, getattr(self, name), "a share from 0 to 1")
        if not 1 <= self.turns <= MOST_TURNS:
            raise refuse("turns", self.turns, f"1 to {MOST_TURNS}")

    @property
    def described(self) -> str:
        return (
            f"questions of {_span(self.question_s)} s and replies of at most "
            f"{_span(self.reply_s)} s, uniform; {self.turns:g} questions a call on average "
            f"(geometric, at most {MOST_TURNS}); {self.interrupted:.0%} of the replies are "
            f"interrupted and {self.left:.0%} of the calls left in the middle of a reply; "
            f"exponential pauses, {self.pause_s:g} s on average before the next question and "
            f"{self.between_s:g} s before the next call; seed {self.seed}"
        )


@dataclass(frozen=True)
class PlannedTurn:
    question: int  # number of the question
    reply_codes: int  # the most codes of the reply
    pause_s: float  # after the reply
    # Share of the longest possible reply after which the caller speaks again; None: listens to the
    # end. In the last turn of a call the caller hangs up then.
    cut: float | None = None


@dataclass(frozen=True)
class Call:
    turns: tuple[PlannedTurn, ...]
    between_s: float  # until the caller's next call


def plan_call(load: Load, caller: int, number: int) -> Call:
    """The call with this number of this caller."""
    chance = Random(f"{load.seed}/{caller}/{number}")
    turns = 1
    while turns < MOST_TURNS and chance.random() >= 1 / load.turns:
        turns += 1
    leaves = chance.random() < load.left
    planned = [_plan_turn(load, chance) for _ in range(turns)]
    cuts = [chance.random() < load.interrupted for _ in planned[1:]] + [leaves]
    return Call(
        tuple(
            PlannedTurn(turn.question, turn.reply_codes, turn.pause_s, turn.cut if cut else None)
            for turn, cut in zip(planned, cuts, strict=True)
        ),
        chance.expovariate(1 / load.between_s) if load.between_s else 0.0,
    )


def _plan_turn(load: Load, chance: Random) -> PlannedTurn:
    return PlannedTurn(
        chance.randrange(load.questions),
        max(1, round(chance.uniform(*load.reply_s) / SECONDS_PER_CODE)),
        chance.expovariate(1 / load.pause_s) if load.pause_s else 0.0,
        chance.uniform(0.1, 0.8),
    )


def first_calls(callers: int, ramp_s: float, seed: int) -> list[float]:
    """When each caller calls first. Arrivals of a Poisson process, given their number, are
    independent and uniform."""
    chance = Random(f"{seed}/first calls of {callers}")
    return [chance.uniform(0, ramp_s) for _ in range(callers)]


def ramp_s(seconds: float) -> float:
    """How long the callers of a level take to arrive, before `seconds` are measured."""
    return min(MOST_RAMP_S, RAMP_SHARE * seconds)


def question_lengths(load: Load) -> list[float]:
    """The seconds of each question: all parts of the range occur."""
    chance, (low, high) = Random(f"{load.seed}/questions"), load.question_s
    width = (high - low) / load.questions
    lengths = [low + width * (part + chance.random()) for part in range(load.questions)]
    chance.shuffle(lengths)
    return lengths


def _span(bounds: tuple[float, float]) -> str:
    low, high = bounds
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
