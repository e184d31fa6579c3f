"""What runs in the next step, and what is refused: pure functions of small values and a clock.

Rules, each one a function below:

- Due. Row k (from 0) of a stretch of speech is due (k - buffer_rows) · 80 ms after the stretch's
  first row; a first row is due when it was asked for. A text row is due text_wait_s after the one
  before it. Rows heard are due gather_s after they came; if a reply waits for them, when that was
  asked for. Whoever is due first goes first. A due time never moves while its owner waits, so
  nobody starves.
- Dry. Speech runs dry when row k is missing k · 80 ms after the first. No work is added to a step
  that would then last beyond that, but what is overdue: text by then as urgent as speech, and
  prefill by patience_s, which gets least_rows a step.
- Prefill is cut to the time left: as much as fits before anybody runs dry, at most the time of the
  decode step beside it while anybody is behind its buffer, else one pass of the stepper.
- Rows heard wait for company while somebody speaks: one pass then serves many listeners.
- A reply whose last rows are computed in a step gets its first row in the same step.
- Hurry. Other users of the device wait for a step in which something is due, or a stretch of speech
  has fewer than first_rows; see `priority`.

Knows nothing of pages taken, threads or tensors.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from mosslive.config import SECONDS_PER_CODE
from mosslive.engine.settings import EngineSettings
from mosslive.engine.step_costs import StepCosts

Kind = Literal["listening", "text", "speech"]  # of reply being made, or none


class Candidate(NamedTuple):
    """What one conversation asks of the next step."""

    key: int
    kind: Kind
    pending: int  # rows to go through the trunk before a reply can go on
    since: float  # when the reply was asked for or its latest row made; when pending rows came
    spoken: int = 0  # rows of the current stretch of speech
    began: float = 0.0  # when the first of them was made


class Plan(NamedTuple):
    """Both empty: nothing to do until somebody asks for more."""

    prefill: list[tuple[int, int]]  # key, rows
    decode: list[int]  # keys


def due_at(candidate: Candidate, settings: EngineSettings) -> float:
    if candidate.kind == "speech":
        if not candidate.spoken:
            return candidate.since
        return candidate.began + (candidate.spoken - settings.buffer_rows) * SECONDS_PER_CODE
    if candidate.kind == "text":
        return candidate.since + (0.0 if candidate.pending else settings.text_wait_s)
    return candidate.since + settings.gather_s


def is_urgent(candidates: Iterable[Candidate], now: float, settings: EngineSettings) -> bool:
    """Whether other users of the device should wait for the next step: something in it is due, or a
    listener has not heard anything yet, because sound is made of several rows."""
    return any(
        due_at(candidate, settings) <= now
        or (candidate.kind == "speech" and candidate.spoken < settings.first_rows)
        for candidate in candidates
    )


def underrun_at(candidate: Candidate) -> float:
    """When the listener will have heard everything made; never, before the first row."""
    if candidate.kind != "speech" or not candidate.spoken:
        return math.inf
    return candidate.began + candidate.spoken * SECONDS_PER_CODE


def advance_playout(spoken: int, began: float, now: float) -> tuple[int, float, bool]:
    """A row of speech is made now: the stretch's rows, its beginning, and whether the listener had
    run dry. After such a gap time counts from the row that ended it: one gap is missed once, and a
    stream that was late once is not the most urgent for ever."""
    late = spoken > 0 and now > began + spoken * SECONDS_PER_CODE
    if not spoken or late:
        began = now - spoken * SECONDS_PER_CODE
    return spoken + 1, began, late


class Limits(NamedTuple):
    """What one step takes at most, and what steps cost."""

    requests: int
    rows: int
    decode: StepCosts
    prefill: StepCosts


def plan(
    candidates: Sequence[Candidate], now: float, limits: Limits, settings: EngineSettings
) -> Plan:
    ready = [candidate for candidate in candidates if not candidate.pending]
    waiting = [candidate for candidate in candidates if candidate.pending]
    dry = min(map(underrun_at, candidates), default=math.inf)
    batch = select_batch(ready, now, dry, limits, settings)
    allotted: list[tuple[int, int]] = []
    if waiting and not waits_for_batch(candidates, now, settings):
        waiting.sort(key=lambda candidate: due_at(candidate, settings))
        allotted = allot_rows(waiting, prefill_rows(batch, waiting[0], now, dry, limits, settings))
        complete = [
            candidate
            for candidate, (_, rows) in zip(waiting, allotted, strict=False)
            if rows == candidate.pending and candidate.kind != "listening"
        ]
        batch = batch + complete[: limits.requests - len(batch)]
    return Plan(allotted, [candidate.key for candidate in batch])


def waits_for_batch(candidates: Sequence[Candidate], now: float, settings: EngineSettings) -> bool:
    """Whether rows heard wait for company: somebody speaks, no reply waits for rows, and none of
    them is due."""
    return any(candidate.kind == "speech" for candidate in candidates) and all(
        candidate.kind == "listening" and due_at(candidate, settings) > now
        for candidate in candidates
        if candidate.pending
    )


def select_batch(
    ready: list[Candidate], now: float, dry: float, limits: Limits, settings: EngineSettings
) -> list[Candidate]:
    """Who gets a row: everybody, if the step then ends before speech runs dry; else speech and
    overdue text, and as many others as there is time for; the most urgent first."""
    if len(ready) <= limits.requests and now + limits.decode.seconds(len(ready), now) <= dry:
        return ready
    ready = sorted(ready, key=lambda candidate: due_at(candidate, settings))
    must = [
        candidate
        for candidate in ready
        if candidate.kind == "speech" or due_at(candidate, settings) <= now
    ]
    may = [
        candidate
        for candidate in ready
        if candidate.kind != "speech" and due_at(candidate, settings) > now
    ]
    room = limits.decode.size_within(dry - now, limits.requests, now)
    return (must + may[: max(0, room - len(must))])[: limits.requests]


def prefill_rows(
    batch: Sequence[Candidate],
    first: Candidate,
    now: float,
    dry: float,
    limits: Limits,
    settings: EngineSettings,
) -> int:
    """How many rows may be prefilled in a step beside this batch. `first`: the most urgent."""
    if dry == math.inf:
        return limits.rows
    decode_s = limits.decode.seconds(len(batch), now)
    room_s = dry - now - decode_s
    if any(candidate.kind == "speech" and due_at(candidate, settings) < now for candidate in batch):
        room_s = min(room_s, decode_s)
    rows = limits.prefill.size_within(room_s, limits.rows, now)
    if now - due_at(first, settings) >= settings.patience_s:
        rows = max(rows, min(settings.least_rows, limits.rows))
    return rows


def allot_rows(waiting: Iterable[Candidate], rows: int) -> list[tuple[int, int]]:
    """Deals rows out in order; (key, how many) as far as they go."""
    allotted = []
    for candidate in waiting:
        if not rows:
            break
        now = min(candidate.pending, rows)
        allotted.append((candidate.key, now))
        rows -= now
    return allotted


class PageRequest(NamedTuple):
    """A reply that needs more pages before its next row."""

    key: int
    speech: bool
    asked_at: float
    pages: int


def out_of_pages(growing: Sequence[PageRequest], free: int, headroom: int = 0) -> list[int]:
    """Whose replies end because pages do: text before speech, and among equals the newest first,
    until the rest fits. Text must leave `headroom` pages to speech."""
    ended: list[int] = []
    for speech, most in ((False, max(0, free - headroom)), (True, free)):
        missing = sum(growth.pages for growth in growing if growth.key not in ended) - most
        candidates = [growth for growth in growing if growth.speech == speech]
        for growth in sorted(candidates, key=lambda growth: -growth.asked_at):
            if missing <= 0:
                break
            ended.append(growth.key)
            missing -= growth.pages
    return ended


def misses_deadlines(
    speaking: int, decode: StepCosts, now: float, settings: EngineSettings
) -> bool:
    """Whether `speaking` speech replies at once would make a step longer than planned for. A single
    reply breaks them only if a fresh measurement says so: else it is tried, and that measures."""
    if speaking > settings.max_speaking:
        return True
    if speaking == 1 and not decode.is_measured(1, now):
        return False
    return decode.seconds(speaking, now) > settings.longest_step_s


def headroom_pages(replies: int, page_size: int, settings: EngineSettings) -> int:
    """Pages that new work must leave to the replies being made."""
    return replies * -(-settings.headroom_rows // page_size)
