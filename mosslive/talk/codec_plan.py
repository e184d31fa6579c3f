"""Which steps of the codec start now: a pure function of small values and a moment.

The work of all conversations falls into lanes. On a GPU each lane is a CUDA stream of its own with
its own priority, so a first sound does not wait for the sound of replies that are ahead. One step
of a lane runs at a time.

| lane   | work                                                              | priority |
|--------|-------------------------------------------------------------------|----------|
| first  | first sounds of replies; sound that would run dry behind `render` | highest  |
| hear   | ends of turns, then blocks of turns                               | high     |
| render | further and last chunks of replies                                | lowest   |

Rules:

1. A step takes all work of its lane that is ready, earliest deadline first, at most `most`.
2. Ends of turns run before blocks of turns, in a step of their own.
3. Batching: blocks and further chunks wait for a larger step, until half of the open turns or
   replies have one, or until one of them is due soon.
4. While a listener waits for a first sound, further chunks start only if one of them is due soon.
5. Work that is `apart` joins no step that is due before it, and until it is due it does not start
   while a listener waits for a first sound.
6. Without lanes, as on a CPU, only the step with the earliest deadline starts.

Knows neither networks nor threads.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Stage = Literal["finish", "hear", "first", "render"]
Lane = Literal["first", "hear", "render"]

_LANES: dict[Stage, Lane] = {"finish": "hear", "hear": "hear", "first": "first", "render": "render"}
_ORDER: tuple[Stage, ...] = ("first", "finish", "hear", "render")


class Work(NamedTuple):
    """What one turn or reply has for the next step of its lane."""

    key: int
    stage: Stage
    due: float
    apart: bool = False
    overlaps: bool = True  # it may run beside a step of the lane `render`


class Step(NamedTuple):
    stage: Stage
    keys: list[int]

    @property
    def lane(self) -> Lane:
        return _LANES[self.stage]


@dataclass(frozen=True)
class PlanSettings:
    # Blocks: a turn's next code comes after 80 ms. Chunks: longer than any step, and enough for a
    # pause of the process; a reply whose sound lasts longer can wait for companions.
    hear_soon_s: float = 0.06
    render_soon_s: float = 1.0
    dry_s: float = 0.12  # sound that is due within this time does not wait for a step that runs
    most_first: int = 8  # in one step: more would delay the first of them
    most_hear: int = 128
    most_render: int = 64


class Open(NamedTuple):
    """How many turns are being heard, how many replies are being made, and how many of these have
    no sound yet although somebody listens."""

    turns: int
    replies: int
    unheard: int = 0


def plan(
    work: Iterable[Work],
    busy: Collection[Lane],
    open_: Open,
    now: float,
    settings: PlanSettings,
    *,
    lanes: bool,
) -> list[Step]:
    """The steps to start now. `busy`: lanes with a step that runs. `lanes`: whether the device runs
    steps of several lanes at a time."""
    stages: dict[Stage, list[Work]] = {stage: [] for stage in _ORDER}
    for one in work:
        if is_held(one, open_, now):
            continue
        stages[stage_of(one, busy, now, settings) if lanes else one.stage].append(one)
    steps: list[tuple[float, Step]] = []
    taken = set(busy)
    for stage in _ORDER:
        ready = sorted(stages[stage], key=lambda one: one.due)
        if not ready or _LANES[stage] in taken:
            continue
        if lanes and gathers(stage, ready, open_, now, settings):
            continue
        steps.append((ready[0].due, Step(stage, chosen(ready, stage, settings))))
        taken.add(_LANES[stage])
    if lanes or not steps:
        return [step for _, step in steps]
    return [min(steps, key=lambda one: one[0])[1]] if not busy else []


def is_held(one: Work, open_: Open, now: float) -> bool:
    """Whether it waits for first sounds of others."""
    return one.apart and open_.unheard > 0 and one.due > now


def stage_of(one: Work, busy: Collection[Lane], now: float, settings: PlanSettings) -> Stage:
    """The stage in whose lane the work runs."""
    if one.stage == "first" and not one.overlaps:
        return "render"
    dry = one.stage == "render" and "render" in busy and one.due - now < settings.dry_s
    return "first" if dry and one.overlaps else one.stage


def gathers(
    stage: Stage, ready: Sequence[Work], open_: Open, now: float, settings: PlanSettings
) -> bool:
    """Whether the step waits for more work to join it. `ready`: earliest deadline first."""
    if stage in ("first", "finish"):
        return False
    if stage == "hear":
        return 2 * len(ready) < open_.turns and ready[0].due - now > settings.hear_soon_s
    few = 2 * len(ready) < open_.replies or open_.unheard > 0
    return few and ready[0].due - now > settings.render_soon_s


def next_change(
    work: Iterable[Work], busy: Collection[Lane], open_: Open, settings: PlanSettings
) -> float:
    """When the plan changes although no work comes and no step ends; inf: not before that."""

    def moment(one: Work) -> float:
        if one.stage == "render" and "render" in busy:
            overtakes = one.overlaps and "first" not in busy
            return one.due - settings.dry_s if overtakes else math.inf
        if one.stage == "first" and not one.overlaps and "render" in busy:
            return math.inf
        if _LANES[one.stage] in busy:
            return math.inf
        if one.apart and open_.unheard:
            return one.due
        soon_s = {"hear": settings.hear_soon_s, "render": settings.render_soon_s}
        return one.due - soon_s.get(one.stage, 0.0)

    return min(map(moment, work), default=math.inf)


def chosen(ready: Sequence[Work], stage: Stage, settings: PlanSettings) -> list[int]:
    """The keys of a step. `ready`: earliest deadline first."""
    most = {
        "first": settings.most_first,
        "finish": settings.most_hear,
        "hear": settings.most_hear,
        "render": settings.most_render,
    }[stage]
    earliest = ready[0].due
    joining = [one.key for one in ready if not one.apart or one.due <= earliest]
    return joining[:most]
