"""The loop of the engine thread: apply the callers' changes, plan, run a step, deliver rows.

One thread owns the stepper and all page tables: the thread "mosslive-engine" in `run`, or a test
that calls `step`. It holds the lock of `EngineState` for bookkeeping, never while the model runs.
Policy is in `scheduler`, arithmetic in the stepper.
"""

import math
from collections.abc import Callable, Sequence
from queue import Empty
from typing import TypeVar

from mosslive.cache import OutOfPages
from mosslive.engine.device_errors import raise_if_lost
from mosslive.engine.device_priority import DevicePriority
from mosslive.engine.errors import EngineBroken, StepFailed, step_failed
from mosslive.engine.health import Health
from mosslive.engine.request import Request
from mosslive.engine.scheduler import (
    Candidate,
    Limits,
    Pace,
    PageRequest,
    Plan,
    headroom_pages,
    is_urgent,
    out_of_pages,
    plan,
)
from mosslive.engine.sequence import NOT_TRUNCATED, ActiveReply, SequenceState
from mosslive.engine.state import EngineState
from mosslive.engine.step_costs import StepCosts
from mosslive.engine.stepper import Stepper, StepResult
from mosslive.errors import MossliveError
from mosslive.rows import Row

Job = TypeVar("Job")
Result = TypeVar("Result")


class EngineLoop:
    def __init__(
        self, stepper: Stepper, state: EngineState, priority: DevicePriority | None = None
    ) -> None:
        """`priority`: shared with the other users of the device."""
        self.stepper = stepper
        self.state = state
        self.steps = 0
        self.rows_made = 0
        self.missed = 0  # speech rows computed after an underrun
        self._decoded_at = self._rests_until = -math.inf  # see `Plan` and `Pace`
        self.prefill_s = self.decode_s = 0.0  # of all steps so far
        self.health = Health("the language model", state.clock)
        prefill = StepCosts(state.settings.prefill_guess_ms)
        self.limits = Limits(stepper.most_requests, stepper.most_rows, state.decode_costs, prefill)
        self.device_user = (priority or DevicePriority()).join(lambda: state.inbox.put(None))

    def run(self) -> None:
        """Runs steps until the engine is closed. An error ends it and reaches all waiters."""
        try:
            while not self.done:
                if self.device_user.others_urgent:
                    self.device_user.yield_device(self._is_urgent, self._wait_inbox)
                if not self.step() and not self.done:
                    self._wait_inbox(self._rest_s())
        except BaseException as error:
            self.health.ended(error)
            self.state.fail(error)
        finally:
            self.device_user.leave()

    @property
    def done(self) -> bool:
        return self.state.closing and not self.state.sequences

    def step(self) -> bool:
        """Runs one step. Returns False if there was no work."""
        state, began = self.state, self.state.clock()
        self._drain_inbox()
        with state:
            self._apply_changes()
            candidates = self._candidates()
            pace = Pace(state.count_speaking(), self._decoded_at)
            chosen = plan(candidates, began, self.limits, state.settings, pace)
            jobs = [self._prefill_job(state.sequences[key], rows) for key, rows in chosen.prefill]
            replies = self._reserve_pages(chosen)
            ended, state.ended = state.ended, []
        self.device_user.set_urgent(is_urgent(candidates, began, state.settings))
        for reply in ended:
            if reply.request:
                self.stepper.release(reply.request)
        if jobs:
            began += self._prefill(jobs, replies)
        self._rests_until = chosen.rests_until
        if replies:
            self._decoded_at = began
            self._decode(replies, began)
        self.steps += bool(jobs or replies)
        return bool(jobs or replies or ended)

    def _rest_s(self) -> float | None:
        """How long speech that is ahead still waits; None: there is no such work."""
        left_s = self._rests_until - self.state.clock()
        return None if self._rests_until == -math.inf else max(0.0, left_s)

    def _is_urgent(self) -> bool | None:
        """Whether the next step is urgent; None if there is no work."""
        state = self.state
        self._drain_inbox()
        with state:
            self._apply_changes()
            candidates = self._candidates()
        return is_urgent(candidates, state.clock(), state.settings) if candidates else None

    def _drain_inbox(self) -> None:
        while self._wait_inbox(0):
            pass

    def _wait_inbox(self, timeout_s: float | None = None) -> bool:
        """Takes one message, after at most `timeout_s` (None: no limit). Returns False if none
        came."""
        try:
            orphan = self.state.inbox.get(timeout_s != 0, timeout_s)
        except Empty:
            return False
        if orphan:
            with self.state:
                self.state.close(orphan)
        return True

    # Bookkeeping: callers hold the lock.

    def _apply_changes(self) -> None:
        """Updates page tables after changes by callers. Forks come first, because the pages they
        share may be freed next."""
        changed = self.state.changed
        for sequence in changed.values():
            if sequence.parent:
                sequence.parent.pending_forks.remove(sequence)
                sequence.table, sequence.parent = sequence.parent.table.fork(), None
        pages_freed = any(
            sequence.closed or sequence.truncated_to < NOT_TRUNCATED
            for sequence in changed.values()
        )
        # All are truncated before any adopts, so that no sequence adopts a page about to be freed.
        for sequence in changed.values():
            self._apply_truncation(sequence)
        for sequence in changed.values():
            if not len(sequence.table) and sequence.rows:
                sequence.table.adopt(sequence.rows)
            self._recount(sequence)
        if pages_freed:  # a page that was shared may have one user now
            for sequence in self.state.sequences.values():
                if sequence.shared:
                    self._recount(sequence)
        changed.clear()
        self.state.count_pool()

    def _apply_truncation(self, sequence: SequenceState) -> None:
        table = sequence.table
        if sequence.closed:
            sequence.rows.clear()
            sequence.released = True
            self.state.sequences.pop(sequence.key, None)
        table.truncate(min(sequence.truncated_to, len(sequence.rows), len(table)))
        sequence.truncated_to = NOT_TRUNCATED
        if len(table) < len(sequence.rows):
            table.own_last()  # the next rows are written there

    def _recount(self, sequence: SequenceState) -> None:
        """Called after the table or the rows changed, while no step runs on them."""
        table = sequence.table
        sequence.computed, sequence.counted_pages = len(table), len(table.pages)
        sequence.shared = bool(sequence.pending_forks) or table.may_share_last
        sequence.step_pages = sequence.pages_to_free = 0
        self.state.update_reservation(sequence)
        if sequence.computed == len(sequence.rows):
            sequence.has_pending = False
        if sequence.waiters and sequence.settled:
            self.state.wake_settled(sequence)

    def _candidates(self) -> list[Candidate]:
        candidates, active = [], self.state.active
        for sequence in list(active.values()):
            if sequence.reply and sequence.reply.abandoned:
                self.state.drop_abandoned(sequence)
            if sequence.reply is None and not sequence.has_pending:
                del active[sequence.key]
            elif candidate := sequence.candidate():
                candidates.append(candidate)
        return candidates

    def _prefill_job(self, sequence: SequenceState, rows: int) -> tuple[SequenceState, list[Row]]:
        sequence.step_pages = sequence.reserved
        return sequence, sequence.rows[sequence.computed : sequence.computed + rows]

    def _reserve_pages(self, chosen: Plan) -> list[ActiveReply]:
        """Returns the replies that get a row: those for whose next row a page can be reserved."""
        state, size = self.state, self.state.pool.page_size
        replies = [reply for key in chosen.decode if (reply := state.sequences[key].reply)]
        growing = []
        for reply in replies:
            sequence = reply.sequence
            sequence.step_pages = sequence.pages_for(1, size)
            if sequence.step_pages > sequence.reserved:
                pages = sequence.step_pages - sequence.reserved
                growing.append(
                    PageRequest(
                        sequence.key,
                        reply.kind == "speech" and not reply.speculative,
                        reply.arrived_at,
                        pages,
                    )
                )
        if not growing:  # the common case: a page holds many rows
            return replies
        headroom = headroom_pages(state.count_speaking(), size, state.settings)
        for key in out_of_pages(growing, state.free_pages, headroom):
            sequence = state.sequences[key]
            sequence.step_pages = sequence.reserved
            if sequence.reply:
                state.end(sequence.reply, stop="pages")
        for need in growing:
            state.update_reservation(state.sequences[need.key])
        return [reply for reply in replies if not reply.ended]

    # The model: without the lock.

    def _prefill(
        self, jobs: list[tuple[SequenceState, list[Row]]], replies: list[ActiveReply]
    ) -> float:
        """Returns the seconds it took."""

        def compute(some: Sequence[tuple[SequenceState, list[Row]]]) -> list[MossliveError | None]:
            self.stepper.prefill([(sequence.table, rows) for sequence, rows in some])
            return [None] * len(some)

        began = self.state.clock()
        results = self._run("prefill", jobs, compute)
        seconds = self.state.clock() - began
        self.prefill_s += seconds
        self._record_health("prefill", results)
        self.limits.prefill.observe(sum(len(rows) for _, rows in jobs), seconds, began + seconds)
        with self.state:
            lost = [
                (sequence, error)
                for (sequence, _), error in zip(jobs, results, strict=True)
                if error and sequence.truncated_to == NOT_TRUNCATED and not sequence.closed
            ]
            self._apply_changes()
            for sequence, _ in jobs:
                self._recount(sequence)
            for sequence, error in lost:
                self.state.discard_failed_rows(sequence, error)
                self._recount(sequence)
            for reply in replies:  # this step still decodes them
                if not reply.ended:
                    reply.sequence.step_pages = reply.sequence.pages_for(
                        1, self.state.pool.page_size
                    )
                    self.state.update_reservation(reply.sequence)
            self.state.count_pool()
        return seconds

    def _decode(self, replies: list[ActiveReply], began: float) -> None:
        """`began`: start of the step, moved by the duration of its prefill."""
        state = self.state
        # A caller or a failed prefill may have ended some of them.
        live = [reply for reply in replies if not reply.ended and not reply.abandoned]
        for reply in live:
            if reply.request is None:
                reply.request = Request(
                    [], reply.sampling, state.ids, reply.sequence.table, state.context_rows
                )

        def decode(some: Sequence[ActiveReply]) -> list[StepResult]:
            requests = [reply.request for reply in some if reply.request]
            for reply, request in zip(some, requests, strict=True):
                if len(request.new_rows) != len(reply.rows):
                    raise StepFailed("a step failed after it had made rows; they are lost")
            return self.stepper.decode(requests)

        # A first row may run a tail over the whole prompt, so its step is not measured.
        measurable = all(reply.rows for reply in live)
        decode_began = state.clock()
        results = self._run("decode", live, decode) if live else []
        self._record_health("decode", results)
        now = state.clock()
        self.decode_s += now - decode_began
        with state:
            for reply, result in zip(live, results, strict=True):
                self._deliver(reply, result, now)
            self._apply_changes()
            for reply in replies:
                self._recount(reply.sequence)
            state.count_pool()
            if live and measurable:
                now = state.clock()
                state.decode_costs.observe(len(live), now - began, now)

    def _run(
        self,
        kind: str,
        jobs: Sequence[Job],
        call: Callable[[Sequence[Job]], list[Result | MossliveError]],
    ) -> list[Result | MossliveError]:
        self.health.began(kind, kind)
        try:
            return _run_batch(jobs, call)
        finally:
            self.health.over(kind)

    def _record_health(self, kind: str, results: Sequence[object]) -> None:
        """Counts a pass as failed if it failed for all jobs. `OutOfPages` is not a failure."""
        errors = [result for result in results if isinstance(result, MossliveError)]
        failures = [error for error in errors if not isinstance(error, OutOfPages)]
        if len(errors) < len(results):
            self.health.succeeded(kind)
        elif failures:
            self.health.failed(kind, failures[0].__cause__ or failures[0])

    def _deliver(self, reply: ActiveReply, result: StepResult, now: float) -> None:
        """Adds the row of a step to its reply, under the lock. A reply that ended during the step
        does not get the row."""
        state, sequence, request = self.state, reply.sequence, reply.request
        assert request is not None
        if reply.ended:
            return
        if reply.abandoned:
            state.end(reply, stop="interrupted")
        elif isinstance(result, OutOfPages):
            state.end(reply, stop="pages")
        elif isinstance(result, MossliveError):
            state.end(reply, error=result)
        else:
            sequence.rows.append(result)
            speech, speech_follows = request.mode == "audio", request.upcoming_mode == "audio"
            self.missed += reply.add(result, speech, speech_follows, now)
            self.rows_made += 1
            reply.paused = reply.unread_rows >= state.ahead_rows(reply)
            if request.stop:
                state.end(reply, stop=request.stop)
            else:
                state.wake_reader(reply)


def _run_batch(
    jobs: Sequence[Job], call: Callable[[Sequence[Job]], list[Result | MossliveError]]
) -> list[Result | MossliveError]:
    """Calls with all jobs; if that fails, with one at a time, so that only the faulty one fails."""
    try:
        return call(jobs)
    except EngineBroken:
        raise
    except Exception as error:
        raise_if_lost(error)
        if len(jobs) == 1:
            return [step_failed(error)]
        return [result for job in jobs for result in _run_batch([job], call)]
