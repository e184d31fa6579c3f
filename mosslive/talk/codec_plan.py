"""Which steps of the codec start now: a pure function of small values and a moment.

The work of all conversations falls into lanes. On a GPU each lane is a CUDA stream of its own with
its own priority, so a first sound does not wait for the sound of replies that are ahead. One step
of a lane runs at a time.

| lane   | work                                                              | priority |
|--------|-------------------------------------------------------------------|----------|
| first  | first sounds of replies; chunks that a listener needs soon         | highest  |
| hear   | ends of turns, then blocks of turns                               | high     |
| render | further and last chunks of replies                                | lowest   |

Rules:

1. A step takes all work of its lane that is ready, earliest deadline first, at most `most`.
2. Ends of turns run before blocks of turns, in a step of their own.
3. Batching: blocks wait until every open turn has one, further chunks until half of the open
   replies have one; or until one of them is due soon.
4. While a listener waits for a first sound, further chunks start only if one of them is due soon.
   Chunks that would run dry in a large step, as the second of each reply, run in the lane `first`
   if it is free, as many as fit into its step.
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
    # Blocks: at most two codes (160 ms) of a turn wait for companions. Chunks: longer than any
    # step, and enough for a pause of the process; a reply whose sound lasts longer can wait for
    # companions.
    hear_soon_s: float = 0.04
    render_soon_s: float = 0.4
    dry_s: float = 0.26  # sound that is due within this time waits for no large step
    most_first: int = 8  # in one step: more would delay the first of them
    most_hear: int = 128
    most_render: int = 96


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
    free = [one for one in work if not is_held(one, open_, now)]
    stages = by_stage(free, busy, now, settings, lanes=lanes)
    steps: list[tuple[float, Step]] = []
    taken = set(busy)
    for stage in _ORDER:
        ready = stages[stage]
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


def by_stage(
    work: Iterable[Work],
    busy: Collection[Lane],
    now: float,
    settings: PlanSettings,
    *,
    lanes: bool,
) -> dict[Stage, list[Work]]:
    """The work by the stage in whose lane it runs, earliest deadline first."""
    stages: dict[Stage, list[Work]] = {stage: [] for stage in _ORDER}
    for one in sorted(work, key=lambda one: one.due):
        alone = lanes and one.stage == "first" and not one.overlaps
        stages["render" if alone else one.stage].append(one)
    if lanes and "first" not in busy:
        room = max(0, settings.most_first - len(stages["first"]))
        dry = [one for one in stages["render"] if runs_dry(one, now, settings)][:room]
        stages["first"] = sorted(stages["first"] + dry, key=lambda one: one.due)
        stages["render"] = [one for one in stages["render"] if one not in dry]
    return stages


def runs_dry(one: Work, now: float, settings: PlanSettings) -> bool:
    return one.stage == "render" and one.overlaps and one.due - now < settings.dry_s


def gathers(
    stage: Stage, ready: Sequence[Work], open_: Open, now: float, settings: PlanSettings
) -> bool:
    """Whether the step waits for more work to join it. `ready`: earliest deadline first."""
    if stage in ("first", "finish"):
        return False
    if stage == "hear":
        return len(ready) < open_.turns and ready[0].due - now > settings.hear_soon_s
    few = 2 * len(ready) < open_.replies or open_.unheard > 0
    return few and ready[0].due - now > settings.render_soon_s


def next_change(
    work: Iterable[Work], busy: Collection[Lane], open_: Open, settings: PlanSettings
) -> float:
    """When the plan changes although no work comes and no step ends; inf: not before that."""

    def moment(one: Work) -> float:
        at = unheld(one)
        return max(at, one.due) if one.apart and open_.unheard else at

    def unheld(one: Work) -> float:
        if one.stage == "render":
            dry = one.overlaps and "first" not in busy
            dry_at = one.due - settings.dry_s if dry else math.inf
            return dry_at if "render" in busy else one.due - settings.render_soon_s
        if one.stage == "first" and not one.overlaps and "render" in busy:
            return math.inf
        if _LANES[one.stage] in busy:
            return math.inf
        return one.due - (settings.hear_soon_s if one.stage == "hear" else 0.0)

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
