"""How many conversations fit: a model of the whole pipeline, from the measured times of its steps.

Stages: the language model decodes and prefills, the encoder hears, flow and vocoder render. A
number of conversations fits if three promises hold while each of them is used without a pause:

1. No gaps in the long run: the stages are busy for at most `MARGIN` of the time. On a GPU steps
   hardly overlap, so the shares of all stages are added. On a CPU with two cores or more the
   engine's and the codec's thread run side by side, so the busier one counts.
2. No gap after the first sound: the second chunk comes while the first, which is short, is played.
3. The first sound of a reply comes within the promised time.

Assumptions, on the safe side:
- A conversation speaks two thirds of the time: a question of 3 s, a reply of 6 s, and so on.
- So many speak at once that more do so in one moment of a thousand only (mean and three standard
  deviations of independent conversations). Up to 18 conversations that is all of them.
- Conversations are not in step: where that takes longer, a step holds half of those that it could.

Pure functions. Laws, tested: slower steps never admit more; more conversations never cost less.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mosslive.config import SECONDS_PER_CODE
from mosslive.server.step_times import StepTimes

STAGES = ("decode", "prefill", "encode", "render_first", "render")
PARTS = {
    "rendering": ("render", "render_first"),
    "language model": ("decode", "prefill"),
    "encoder": ("encode",),
}
_THREADS = (("decode", "prefill"), ("encode", "render", "render_first"))  # engine, codec
FIRST_SOUND = "time to first sound"
SETTINGS = "max_sessions"

MARGIN = 0.85  # of the time; the rest is for what is not measured and for bad luck
SPEAKING = 2 / 3  # share of a conversation's time
TURNS_PER_S = 1 / 9  # of one conversation
FIRST_ROWS = 8  # of a reply, before its first chunk is complete
FIRST_CHUNK_S = 0.24  # sound of a first chunk: five codes, of which the vocoder holds two back
_ROWS_PER_S = 1 / SECONDS_PER_CODE  # heard, or spoken
_CHUNKS_PER_S = _ROWS_PER_S / 5
_PIECE_ROWS = 3  # prefilled at once while the user speaks
_TURN_ROWS = 16  # prefilled at the end of a turn: revised rows and the beginning of the reply
_TURN_STEPS_PER_S = 10.0  # turns that begin or end within 100 ms share a step


@dataclass(frozen=True)
class Promise:
    first_sound_s: float
    threads: int  # of the engine's and the codec's, that compute at the same time: 1 or 2


@dataclass(frozen=True)
class Capacity:
    conversations: int
    limited_by: str  # a name of `PARTS`, `FIRST_SOUND`, or `SETTINGS`
    shares: dict[str, float]  # busy share of the time of each part, with so many conversations
    first_sound_s: float  # with so many conversations

    def document(self) -> dict[str, object]:
        return {
            "conversations": self.conversations,
            "limited_by": self.limited_by,
            "shares": {part: round(share, 3) for part, share in self.shares.items()},
            "first_sound_ms": round(1000 * self.first_sound_s),
        }

    def sentence(self) -> str:
        count = self.conversations
        shares = ", ".join(f"{part} {share:.0%}" for part, share in self.shares.items())
        return (
            f"holds {count} conversation{'' if count == 1 else 's'} ({shares} of the time, first "
            f"sound {1000 * self.first_sound_s:.0f} ms), limited by {self.limited_by}"
        )


def capacity(
    times: Mapping[str, StepTimes],
    most: int,
    promise: Promise,
    slowdowns: Mapping[str, float] | None = None,
) -> Capacity:
    """The most conversations, up to `most`, that fit. `times`: of every stage. `slowdowns`: how
    many times longer steps take at present."""
    # More conversations never cost less, so all numbers up to the largest that fits do.
    count, beyond = 0, most + 1
    while beyond - count > 1:
        middle = (count + beyond) // 2
        if obstacle(middle, times, promise, slowdowns or {}):
            beyond = middle
        else:
            count = middle
    limit = obstacle(beyond, times, promise, slowdowns or {}) if beyond <= most else None
    limit = limit or SETTINGS
    shown = max(1, count)
    shares = max(map(_by_part, busy_shares(shown, times)), key=lambda parts: sum(parts.values()))
    return Capacity(count, limit, shares, first_sound_s(shown, times, promise))


def obstacle(
    count: int,
    times: Mapping[str, StepTimes],
    promise: Promise,
    slowdowns: Mapping[str, float],
) -> str | None:
    """Why so many conversations do not fit; None: they fit.

    Steps that are slow because others use the same device already contain the time of these others.
    So slowed steps are not added across threads, and each thread may be busy all of the time.
    """
    slowed = {stage: times[stage].scaled(slowdowns.get(stage, 1.0)) for stage in STAGES}
    if second_chunk_s(count, slowed) > FIRST_CHUNK_S:
        return "rendering"
    if load(count, times, promise.threads) > MARGIN or load(count, slowed, 2) > 1:
        parts = [_by_part(shares) for shares in busy_shares(count, slowed)]
        return max(PARTS, key=lambda part: max(one[part] for one in parts))
    return FIRST_SOUND if first_sound_s(count, slowed, promise) > promise.first_sound_s else None


def load(count: int, times: Mapping[str, StepTimes], threads: int) -> float:
    """Busy share of the time of the device, or of the busier of two `threads`."""
    return max(_load(shares, threads) for shares in busy_shares(count, times))


def at_once(count: int, share: float) -> int:
    """How many of `count` conversations at most do at once what each does for `share` of the
    time."""
    deviation = math.sqrt(count * share * (1 - share))
    return min(count, math.ceil(count * share + 3 * deviation))


def busy_shares(count: int, times: Mapping[str, StepTimes]) -> list[dict[str, float]]:
    """Busy share of the time of each stage: while as many as possible speak, and while as many as
    possible listen."""
    speaking, listening = at_once(count, SPEAKING), at_once(count, 1 - SPEAKING)
    mixes = ((speaking, count - speaking), (count - listening, listening))
    return [_shares(count, speak, listen, times) for speak, listen in mixes]


def first_sound_s(count: int, times: Mapping[str, StepTimes], promise: Promise) -> float:
    """From the end of a user's turn to the first sound of the reply, while `count` conversations
    are used: the step that runs is waited for, and other turns end at the same time."""
    together = max(1, math.ceil(count * TURNS_PER_S * promise.first_sound_s))
    speaking = at_once(count, SPEAKING)
    return (
        _running_s(count, times)
        + times["encode"].seconds(together)
        + times["prefill"].seconds(_TURN_ROWS * together)
        + (1 + FIRST_ROWS) * times["decode"].seconds(speaking)
        + times["render_first"].seconds(together)
    )


def second_chunk_s(count: int, times: Mapping[str, StepTimes]) -> float:
    """From the first chunk of a reply to its second: the step that runs, and a common step of all
    that speak. The codes come meanwhile."""
    return _running_s(count, times) + times["render"].seconds(at_once(count, SPEAKING))


def _running_s(count: int, times: Mapping[str, StepTimes]) -> float:
    """The rendering step of others that a reply waits for, at most."""
    others = at_once(count, SPEAKING) - 1
    return max(
        times["render"].seconds(math.ceil(others / 2)),
        times["render_first"].seconds(min(1, others)),
    )


def _shares(
    count: int, speaking: int, listening: int, times: Mapping[str, StepTimes]
) -> dict[str, float]:
    turns_per_s = count * TURNS_PER_S
    pieces_per_s = _ROWS_PER_S / _PIECE_ROWS
    return {
        "decode": _steady(times["decode"], _ROWS_PER_S, speaking),
        "prefill": _steady(times["prefill"], pieces_per_s, listening, _PIECE_ROWS)
        + _by_turn(times["prefill"], turns_per_s, _TURN_ROWS),
        "encode": _steady(times["encode"], _ROWS_PER_S, listening)
        + _by_turn(times["encode"], turns_per_s),
        "render_first": _by_turn(times["render_first"], turns_per_s),
        # The last chunk of a reply is a step like any other.
        "render": _steady(times["render"], _CHUNKS_PER_S, speaking)
        + _by_turn(times["render"], turns_per_s),
    }


def _steady(times: StepTimes, per_s: float, members: int, size: int = 1) -> float:
    """Steps that each of `members` needs `per_s` times a second, each with `size` of it: in one
    common step or in two, whichever takes longer."""
    if not members:
        return 0.0
    common = times.seconds(size * members)
    return per_s * max(common, 2 * times.seconds(size * math.ceil(members / 2)) * (members > 1))


def _by_turn(times: StepTimes, turns_per_s: float, size: int = 1) -> float:
    steps = min(turns_per_s, _TURN_STEPS_PER_S)
    return steps * times.seconds(size * math.ceil(turns_per_s / steps)) if steps else 0.0


def _load(shares: Mapping[str, float], threads: int) -> float:
    by_thread = [sum(shares[stage] for stage in stages) for stages in _THREADS]
    return max(by_thread) if threads > 1 else sum(by_thread)


def _by_part(shares: Mapping[str, float]) -> dict[str, float]:
    return {part: sum(shares[stage] for stage in stages) for part, stages in PARTS.items()}
