"""`mosslive bench turns`: how long each rule of turn detection waits, and how often it cuts off.

Every rule gets the same sessions. The first sound of a reply follows the end of the turn by the
time to first audio, an assumption that the caller states; a speculative reply began in the pause,
so it follows the later of the two. Runs in one thread. Knows no files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from mosslive.bench.turns.recordings import Session
from mosslive.bench.turns.rules import HeardSession, Outcome, ask_ahead, listen, outcomes
from mosslive.errors import MossliveError
from mosslive.server.realtime.talk_config import EAGERNESS, SEMANTIC
from mosslive.talk import FixedSilence, TurnSettings
from mosslive.talk.smart_turn import EndModel
from mosslive.talk.vad import VoiceActivity

FIXED_S = (0.2, 0.3, 0.4, 0.5, 0.7, 1.0)


@dataclass(frozen=True)
class Rule:
    name: str
    settings: TurnSettings
    modelled: bool = False


@dataclass(frozen=True)
class RuleResult:
    """Milliseconds after the end of speech, over the turns that were not cut off."""

    rule: str
    turns: int
    cut_off: int  # turns
    wait_p50: float
    wait_p90: float
    first_p50: float  # first sound of the reply
    first_p90: float
    early_p50: float  # the same with speculation
    early_p90: float
    dropped: float  # speculative replies for nothing, per turn

    @property
    def cut_share(self) -> float:
        return self.cut_off / self.turns


def rules(with_model: bool) -> list[Rule]:
    """`with_model`: also those of the end-of-turn model."""
    fixed = [
        Rule(f"silence of {1000 * end_s:.0f} ms", TurnSettings(end=FixedSilence(end_s)))
        for end_s in FIXED_S
    ]
    adaptive = [
        Rule(f"adaptive, {name}", TurnSettings(end=rule)) for name, rule in EAGERNESS.items()
    ]
    smart = [
        Rule(f"Smart Turn, {name}", TurnSettings(end=rule), modelled=True)
        for name, rule in SEMANTIC.items()
    ]
    return fixed + adaptive + (smart if with_model else [])


def hear(
    sessions: Sequence[Session],
    chosen: Sequence[Rule],
    vad: VoiceActivity,
    model: EndModel | None,
    seen: Callable[[str], None] = lambda line: None,
) -> tuple[list[HeardSession], float]:
    """Runs the networks. Returns the median seconds of an answer of the model, 0 without one."""
    heard, seconds = [], list[float]()
    for number, session in enumerate(sessions, 1):
        heard.append(listen(session, vad))
        for rule in chosen:
            if rule.modelled and model:
                seconds += ask_ahead(heard[-1], rule.settings, model)
        seen(f"{session.name}: {number} of {len(sessions)} sessions")
    return heard, median(seconds) if seconds else 0.0


def measure(
    heard: Sequence[HeardSession],
    rule: Rule,
    model: EndModel | None,
    model_s: float,
    ttfa_s: float,
) -> RuleResult:
    found = [
        one
        for session in heard
        for one in outcomes(session, rule.settings, model if rule.modelled else None, model_s)
    ]
    waits = [one.wait_s for one in found if one.wait_s is not None]
    if not waits:
        raise MossliveError(f"{rule.name}: no turn ended; use longer recordings")
    early = [_early_s(one, ttfa_s) for one in found if one.wait_s is not None]
    first = [wait_s + ttfa_s for wait_s in waits]
    return RuleResult(
        rule.name,
        len(found),
        sum(one.cut_off for one in found),
        *_percentiles(waits),
        *_percentiles(first),
        *_percentiles(early),
        sum(one.dropped for one in found) / len(found),
    )


def document(results: Sequence[RuleResult], conditions: dict[str, Any]) -> dict[str, Any]:
    rows = [{**vars(one), "cut_share": round(one.cut_share, 4)} for one in results]
    return {"conditions": conditions, "rules": rows}


def _early_s(one: Outcome, ttfa_s: float) -> float:
    assert one.wait_s is not None
    begun_s = one.wait_s if one.begun_s is None else one.begun_s
    return max(one.wait_s, begun_s + ttfa_s)


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """The median and the 90th, in milliseconds."""
    tenths = quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else [*seconds] * 9
    return round(1000 * median(seconds), 1), round(1000 * tenths[8], 1)
