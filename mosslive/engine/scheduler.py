"""What the next step runs, and which work is admitted: pure functions of small values and a clock.

A stretch is a run of consecutive speech rows of one reply. A row of speech plays for 80 ms.

| candidate                               | due at                                           |
|-----------------------------------------|--------------------------------------------------|
| first row of a speech reply             | arrival of the reply                             |
| row k of a stretch (from 0)             | playout start + (k - buffer_rows) · 80 ms        |
| rows that a reply waits for             | arrival of the reply                             |
| text row                                | text_wait_s after the row before, or arrival     |
| appended rows without a reply           | gather_s after the oldest arrived                |

Rules, each one a function below:

1. Order: earliest due time first. A due time does not move while its owner waits, so no candidate
   starves.
2. Underrun: speech underruns if row k is missing at playout start + k · 80 ms. A step takes on more
   work only if it still ends before the first underrun. Two exceptions: text that is due, and
   prefill overdue by patience_s, which gets least_rows per step.
3. Prefill rows per step: without speech, one pass of the stepper. With speech, as many as fit
   before the first underrun; while a speech row of the batch is due, at most as long as the decode
   step.
4. Batching: while a reply speaks, appended rows wait for gather_s, so that one pass serves many
   conversations. The wait ends if one of them is due, or if a reply waits for rows.
5. First row: a reply whose last pending rows are computed in a step decodes in the same step.
6. First sounds: while a stretch has fewer than first_rows, speech that is spare_rows ahead of its
   playout and text that is not due wait, except as many as make the step little longer, the least
   ahead first.
7. Rest: while rest_from or more replies speak, a step of fewer than rest_below, all of them speech
   that is spare_rows ahead, begins rest_s after the one before: more join it, and the device is
   free for the codec meanwhile.
8. Priority on a CPU: a step is urgent if a candidate is due, or if a stretch has fewer than
   first_rows (see `device_priority`).
9. A speculative reply has no listener: it is never due, and waits while a listener waits for a
   first sound.

Knows nothing of pages in use, threads or tensors. Runs on the engine thread; admission also runs on
the caller's thread, under the lock of `EngineState`.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from mosslive.config import SECONDS_PER_CODE
from mosslive.engine.settings import EngineSettings
from mosslive.engine.step_costs import MIN_MEASUREMENTS, StepCosts

_LITTLE_LONGER = 1.2  # what others may add to a step that a listener without any sound waits for

Kind = Literal["listening", "text", "speech"]  # of the reply's next row; "listening": no reply


class Candidate(NamedTuple):
    """The work that one sequence has for the next step."""

    key: int
    kind: Kind
    pending: int  # rows that are not through the trunk yet
    # Arrival of the reply, or time of its latest row. Without a reply: arrival of the oldest row.
    waiting_since: float
    spoken: int = 0  # rows of the current stretch
    playout_start: float = 0.0  # time at which the first of them starts to play
    speculative: bool = False  # the user may still continue, and the reply be dropped


class Plan(NamedTuple):
    """One step. Both lists are empty if there is no work, or if it rests."""

    prefill: list[tuple[int, int]]  # key, rows
    decode: list[int]  # keys
    rests_until: float = -math.inf  # speech that is ready waits until this moment


class Pace(NamedTuple):
    """What a rest depends on, beside the candidates."""

    speaking: int = 0  # active speech replies, those included that wait for their readers
    decoded_at: float = -math.inf  # start of the decode step before


def due_at(candidate: Candidate, settings: EngineSettings) -> float:
    if candidate.speculative:
        return math.inf
    if candidate.kind == "speech":
        if not candidate.spoken:
            return candidate.waiting_since
        return (
            candidate.playout_start + (candidate.spoken - settings.buffer_rows) * SECONDS_PER_CODE
        )
    if candidate.kind == "text":
        return candidate.waiting_since + (0.0 if candidate.pending else settings.text_wait_s)
    return candidate.waiting_since + settings.gather_s


def is_urgent(candidates: Iterable[Candidate], now: float, settings: EngineSettings) -> bool:
    """Whether other users of the device must yield to the next step: a candidate is due, or a
    listener hears nothing yet, because the codec needs several rows for its first sound."""
    return any(
        due_at(candidate, settings) <= now or is_unheard(candidate, settings)
        for candidate in candidates
    )


def is_unheard(candidate: Candidate, settings: EngineSettings) -> bool:
    """Whether its listener hears nothing yet."""
    unheard = candidate.kind == "speech" and candidate.spoken < settings.first_rows
    return unheard and not candidate.speculative


def can_wait(candidate: Candidate, now: float, settings: EngineSettings) -> bool:
    """Whether it can wait for a few steps: speech that is far ahead of its playout, and other work
    that is not due."""
    spare_s = settings.spare_rows * SECONDS_PER_CODE
    return due_at(candidate, settings) > now and underrun_at(candidate) - now > spare_s


def underrun_at(candidate: Candidate) -> float:
    """Returns when the listener has heard all rows; infinity before the first row, and without a
    listener."""
    if candidate.kind != "speech" or not candidate.spoken or candidate.speculative:
        return math.inf
    return candidate.playout_start + candidate.spoken * SECONDS_PER_CODE


def advance_playout(spoken: int, playout_start: float, now: float) -> tuple[int, float, bool]:
    """Counts a speech row computed at `now`. Returns the rows of the stretch, its playout start
    and whether the row came after an underrun. An underrun moves the playout start, so that one gap
    counts once and a stream that was late once is not the most urgent from then on."""
    late = spoken > 0 and now > playout_start + spoken * SECONDS_PER_CODE
    if not spoken or late:
        playout_start = now - spoken * SECONDS_PER_CODE
    return spoken + 1, playout_start, late


class Limits(NamedTuple):
    """The largest step, and the measured cost of steps."""

    requests: int
    rows: int
    decode: StepCosts
    prefill: StepCosts


def plan(
    candidates: Sequence[Candidate],
    now: float,
    limits: Limits,
    settings: EngineSettings,
    pace: Pace = Pace(),  # noqa: B008  # immutable
) -> Plan:
    listened = [candidate for candidate in candidates if not candidate.speculative]
    if any(is_unheard(candidate, settings) for candidate in listened):
        candidates = listened
    ready = [candidate for candidate in candidates if not candidate.pending]
    waiting = [candidate for candidate in candidates if candidate.pending]
    underrun = min(map(underrun_at, candidates), default=math.inf)
    rests_until = rest_end(ready, now, pace, settings)
    batch = [] if rests_until > now else select_batch(ready, now, underrun, limits, settings)
    allotted: list[tuple[int, int]] = []
    if waiting and not waits_for_batch(candidates, now, settings):
        waiting.sort(key=lambda candidate: due_at(candidate, settings))
        allotted = allot_rows(
            waiting, prefill_rows(batch, waiting[0], now, underrun, limits, settings)
        )
        complete = [
            candidate
            for candidate, (_, rows) in zip(waiting, allotted, strict=False)
            if rows == candidate.pending and candidate.kind != "listening"
        ]
        batch = batch + complete[: limits.requests - len(batch)]
    return Plan(allotted, [candidate.key for candidate in batch], rests_until)


def rest_end(ready: Sequence[Candidate], now: float, pace: Pace, settings: EngineSettings) -> float:
    """Returns when a step of these replies may begin; -inf if it has no reason to wait."""
    if pace.speaking < settings.rest_from or not 0 < len(ready) < settings.rest_below:
        return -math.inf
    for candidate in ready:
        if candidate.kind != "speech" or is_unheard(candidate, settings):
            return -math.inf
        if not can_wait(candidate, now, settings):
            return -math.inf
    return pace.decoded_at + settings.rest_s


def waits_for_batch(candidates: Sequence[Candidate], now: float, settings: EngineSettings) -> bool:
    """Whether appended rows wait for a larger batch: a reply speaks, no reply waits for rows, and
    no appended row is due."""
    return any(candidate.kind == "speech" for candidate in candidates) and all(
        candidate.kind == "listening" and due_at(candidate, settings) > now
        for candidate in candidates
        if candidate.pending
    )


def select_batch(
    ready: list[Candidate], now: float, underrun: float, limits: Limits, settings: EngineSettings
) -> list[Candidate]:
    """Returns the replies that get a row: all, if the step then ends before the first underrun;
    else speech and text that is due, then as many others as there is time for, most urgent
    first. While a listener hears nothing yet, only what cannot wait."""
    if any(is_unheard(candidate, settings) for candidate in ready):
        ready = with_first_sounds(ready, now, limits, settings)
    if len(ready) <= limits.requests and now + limits.decode.seconds(len(ready), now) <= underrun:
        return ready
    ready = sorted(ready, key=lambda candidate: due_at(candidate, settings))

    def is_required(candidate: Candidate) -> bool:
        speaks = candidate.kind == "speech" and not candidate.speculative
        return speaks or due_at(candidate, settings) <= now

    required = [candidate for candidate in ready if is_required(candidate)]
    optional = [candidate for candidate in ready if not is_required(candidate)]
    fits = limits.decode.size_within(underrun - now, limits.requests, now)
    return (required + optional[: max(0, fits - len(required))])[: limits.requests]


def with_first_sounds(
    ready: list[Candidate], now: float, limits: Limits, settings: EngineSettings
) -> list[Candidate]:
    """Returns the replies of a step for which a listener without any sound waits: what cannot wait,
    and others as long as they make the step little longer."""
    pressing, others = list[Candidate](), list[Candidate]()
    for candidate in ready:
        waits = not is_unheard(candidate, settings) and can_wait(candidate, now, settings)
        (others if waits else pressing).append(candidate)
    longest_s = _LITTLE_LONGER * limits.decode.seconds(len(pressing), now)
    room = limits.decode.size_within(longest_s, len(ready), now) - len(pressing)
    others.sort(key=lambda candidate: (underrun_at(candidate), due_at(candidate, settings)))
    return pressing + others[: max(0, room)]


def prefill_rows(
    batch: Sequence[Candidate],
    first: Candidate,
    now: float,
    underrun: float,
    limits: Limits,
    settings: EngineSettings,
) -> int:
    """Returns how many rows a step that decodes this batch may also prefill. `first`: the most
    urgent one."""
    if underrun == math.inf:
        return limits.rows
    decode_s = limits.decode.seconds(len(batch), now)
    time_left_s = underrun - now - decode_s
    if any(candidate.kind == "speech" and due_at(candidate, settings) < now for candidate in batch):
        time_left_s = min(time_left_s, decode_s)
    rows = limits.prefill.size_within(time_left_s, limits.rows, now)
    if now - due_at(first, settings) >= settings.patience_s:
        rows = max(rows, min(settings.least_rows, limits.rows))
    return rows


def allot_rows(waiting: Iterable[Candidate], rows: int) -> list[tuple[int, int]]:
    """Gives out `rows` in order; returns (key, rows) of each candidate that gets some."""
    allotted = []
    for candidate in waiting:
        if not rows:
            break
        share = min(candidate.pending, rows)
        allotted.append((candidate.key, share))
        rows -= share
    return allotted


class PageRequest(NamedTuple):
    """A reply that needs more pages before its next row."""

    key: int
    speech: bool
    arrived_at: float
    pages: int


def out_of_pages(growing: Sequence[PageRequest], free: int, headroom: int = 0) -> list[int]:
    """Returns the keys of the replies that end because too few pages are free: text before speech,
    the newest first, until the rest fits. Text must leave `headroom` pages to speech."""
    ended: list[int] = []
    for speech, most in ((False, max(0, free - headroom)), (True, free)):
        missing = sum(need.pages for need in growing if need.key not in ended) - most
        same_kind = [need for need in growing if need.speech == speech]
        for need in sorted(same_kind, key=lambda need: -need.arrived_at):
            if missing <= 0:
                break
            ended.append(need.key)
            missing -= need.pages
    return ended


def misses_deadlines(
    speaking: int, decode: StepCosts, now: float, settings: EngineSettings
) -> bool:
    """Whether steps of `speaking` speech replies would be longer than `longest_step_s`. A single
    reply misses deadlines only by fresh measurements: otherwise it is admitted, and its steps are
    the new measurements."""
    if speaking > settings.max_speaking:
        return True
    if settings.admit_slow_steps:
        return False
    if speaking == 1 and not decode.is_measured(1, now):
        return False
    return decode.seconds(speaking, now, MIN_MEASUREMENTS) > settings.longest_step_s


def headroom_pages(replies: int, page_size: int, settings: EngineSettings) -> int:
    """Returns the pages that admission keeps free for the growth of `replies` active replies."""
    return replies * -(-settings.headroom_rows // page_size)
