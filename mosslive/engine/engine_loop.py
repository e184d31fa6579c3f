"""The device side of a served engine: follow the books, plan, run a step, hand out rows.

One thread owns the stepper and all tables; this is its code, whether that thread loops (`run`) or
a test makes one step after another. It holds the lock of the books around bookkeeping only, never
while the model runs.
"""

from collections.abc import Callable, Sequence
from queue import Empty
from typing import TypeVar

from mosslive.cache import OutOfPages
from mosslive.engine.device_priority import DevicePriority
from mosslive.engine.errors import EngineBroken, StepFailed, step_failed
from mosslive.engine.health import Health
from mosslive.engine.request import Request
from mosslive.engine.scheduler import (
    Candidate,
    Limits,
    PageRequest,
    Plan,
    headroom_pages,
    is_urgent,
    out_of_pages,
    plan,
)
from mosslive.engine.sequence import UNCUT, ActiveReply, SequenceState
from mosslive.engine.state import EngineState
from mosslive.engine.step_costs import StepCosts
from mosslive.engine.stepper import Made, Stepper
from mosslive.errors import MossliveError
from mosslive.rows import Row

Job = TypeVar("Job")
Result = TypeVar("Result")


class EngineLoop:
    def __init__(
        self, stepper: Stepper, state: EngineState, priority: DevicePriority | None = None
    ) -> None:
        """`priority`: of those who use the same device."""
        self.stepper = stepper
        self.state = state
        self.steps = 0
        self.rows_made = 0
        self.missed = 0  # rows that came after their listener had heard everything
        self.health = Health("the language model", state.clock)
        prefill = StepCosts(state.settings.prefill_guess_ms)
        self.limits = Limits(stepper.most_requests, stepper.most_rows, state.decode, prefill)
        self.device_user = (priority or DevicePriority()).join(lambda: state.inbox.put(None))

    def run(self) -> None:
        """Until the engine closes; if it breaks, whoever waits is told."""
        try:
            while not self.done:
                if self.device_user.asked:
                    self.device_user.yield_device(self._is_urgent, self._wait_inbox)
                if not self.step() and not self.done:
                    self._wait_inbox()
        except BaseException as error:
            self.health.ended(error)
            self.state.fail(error)
        finally:
            self.device_user.leave()

    @property
    def done(self) -> bool:
        return self.state.closing and not self.state.sequences

    def step(self) -> bool:
        """One step; False if there was nothing to do."""
        state, began = self.state, self.state.clock()
        self._drain_inbox()
        with state:
            self._apply_changes()
            candidates = self._candidates()
            chosen = plan(candidates, began, self.limits, state.settings)
            jobs = [self._claim(state.sequences[key], rows) for key, rows in chosen.prefill]
            replies = self._reserve_pages(chosen)
            ended, state.ended = state.ended, []
        self.device_user.say(is_urgent(candidates, began, state.settings))
        for reply in ended:
            if reply.request:
                self.stepper.release(reply.request)
        if jobs:
            began += self._prefill(jobs, replies)
        if replies:
            self._decode(replies, began)
        self.steps += bool(jobs or replies)
        return bool(jobs or replies or ended)

    def _is_urgent(self) -> bool | None:
        """For the others on the device. None: there is nothing to do."""
        state = self.state
        self._drain_inbox()
        with state:
            self._apply_changes()
            candidates = self._candidates()
        return is_urgent(candidates, state.clock(), state.settings) if candidates else None

    def _drain_inbox(self) -> None:
        while self._wait_inbox(0):
            pass

    def _wait_inbox(self, most_s: float | None = None) -> bool:
        """Waits for some: at most so long, or until it comes."""
        try:
            orphan = self.state.inbox.get(most_s != 0, most_s)
        except Empty:
            return False
        if orphan:
            with self.state:
                self.state.close(orphan)
        return True

    # Bookkeeping; under the lock.

    def _apply_changes(self) -> None:
        """Tables follow what callers wrote. Forks come first: what they share may go next."""
        changed = self.state.changed
        for sequence in changed.values():
            if sequence.parent:
                sequence.parent.pending_forks.remove(sequence)
                sequence.table, sequence.parent = sequence.parent.table.fork(), None
        fewer = any(sequence.closed or sequence.cut < UNCUT for sequence in changed.values())
        # All are cut before any adopts: pages that come back must not be found and held first.
        for sequence in changed.values():
            self._cut(sequence)
        for sequence in changed.values():
            if not len(sequence.table) and sequence.rows:
                sequence.table.adopt(sequence.rows)
            self._recount(sequence)
        if fewer:  # what they gave up may be one other's alone now
            for sequence in self.state.sequences.values():
                if sequence.shared:
                    self._recount(sequence)
        changed.clear()
        self.state.count_pool()

    def _cut(self, sequence: SequenceState) -> None:
        table = sequence.table
        if sequence.closed:
            sequence.rows.clear()
            sequence.released = True
            self.state.sequences.pop(sequence.key, None)
        table.truncate(min(sequence.cut, len(sequence.rows), len(table)))
        sequence.cut = UNCUT
        if len(table) < len(sequence.rows):
            table.own_last()  # rows are about to be written there

    def _recount(self, sequence: SequenceState) -> None:
        """After the table or the rows changed, and no step runs on them."""
        table = sequence.table
        sequence.computed, sequence.held = len(table), len(table.pages)
        sequence.shared = bool(sequence.pending_forks) or table.may_share_last
        sequence.step_pages = sequence.returning = 0
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

    def _claim(self, sequence: SequenceState, rows: int) -> tuple[SequenceState, list[Row]]:
        sequence.step_pages = sequence.reserved
        return sequence, sequence.rows[sequence.computed : sequence.computed + rows]

    def _reserve_pages(self, chosen: Plan) -> list[ActiveReply]:
        """The replies that get a row: those for whose coming row a page can be promised."""
        state, size = self.state, self.state.pool.page_size
        replies = [reply for key in chosen.decode if (reply := state.sequences[key].reply)]
        growing = []
        for reply in replies:
            sequence = reply.sequence
            sequence.step_pages = sequence.pages_for(1, size)
            if sequence.step_pages > sequence.reserved:
                pages = sequence.step_pages - sequence.reserved
                growing.append(
                    PageRequest(sequence.key, reply.kind == "speech", reply.asked_at, pages)
                )
        if not growing:  # as in most steps: a page holds many rows
            return replies
        headroom = headroom_pages(state.count_speaking(), size, state.settings)
        for key in out_of_pages(growing, state.free_pages, headroom):
            sequence = state.sequences[key]
            sequence.step_pages = sequence.reserved
            if sequence.reply:
                state.end(sequence.reply, stop="pages")
        for growth in growing:
            state.update_reservation(state.sequences[growth.key])
        return [reply for reply in replies if not reply.ended]

    # The model; without the lock.

    def _prefill(
        self, jobs: list[tuple[SequenceState, list[Row]]], replies: list[ActiveReply]
    ) -> float:
        """Returns the seconds it took."""

        def compute(some: Sequence[tuple[SequenceState, list[Row]]]) -> list[MossliveError | None]:
            self.stepper.prefill([(sequence.table, rows) for sequence, rows in some])
            return [None] * len(some)

        began = self.state.clock()
        results = _each(jobs, compute)
        seconds = self.state.clock() - began
        self._judge("prefill", results)
        self.limits.prefill.observe(sum(len(rows) for _, rows in jobs), seconds, began + seconds)
        with self.state:
            lost = [
                (sequence, error)
                for (sequence, _), error in zip(jobs, results, strict=True)
                if error and sequence.cut == UNCUT and not sequence.closed
            ]
            self._apply_changes()
            for sequence, _ in jobs:
                self._recount(sequence)
            for sequence, error in lost:
                self.state.discard_failed_rows(sequence, error)
                self._recount(sequence)
            for reply in replies:  # their rows are still to be made in this step
                if not reply.ended:
                    reply.sequence.step_pages = reply.sequence.pages_for(
                        1, self.state.pool.page_size
                    )
                    self.state.update_reservation(reply.sequence)
            self.state.count_pool()
        return seconds

    def _decode(self, replies: list[ActiveReply], began: float) -> None:
        """`began`: when the step did, as if there had been no prefill in it."""
        state = self.state
        # A caller may have ended some of them by now, and so may a prefill that failed.
        live = [reply for reply in replies if not reply.ended and not reply.abandoned]
        for reply in live:
            if reply.request is None:
                reply.request = Request(
                    [], reply.sampling, state.ids, reply.sequence.table, state.longest
                )

        def decode(some: Sequence[ActiveReply]) -> list[Made]:
            requests = [reply.request for reply in some if reply.request]
            for reply, request in zip(some, requests, strict=True):
                if len(request.new_rows) != len(reply.rows):
                    raise StepFailed("a step failed after it had made rows, and lost them")
            return self.stepper.decode(requests)

        typical = all(reply.rows for reply in live)  # a first row may run a tail over all
        results = _each(live, decode) if live else []
        self._judge("decode", results)
        now = state.clock()
        with state:
            for reply, made in zip(live, results, strict=True):
                self._deliver(reply, made, now)
            self._apply_changes()
            for reply in replies:
                self._recount(reply.sequence)
            state.count_pool()
        if live and typical:
            now = state.clock()
            state.decode.observe(len(live), now - began, now)

    def _judge(self, kind: str, results: Sequence[object]) -> None:
        """A pass has failed if it did so for everybody in it. A lack of pages is not a failure."""
        errors = [result for result in results if isinstance(result, MossliveError)]
        failures = [error for error in errors if not isinstance(error, OutOfPages)]
        if len(errors) < len(results):
            self.health.succeeded(kind)
        elif failures:
            self.health.failed(kind, failures[0].__cause__ or failures[0])

    def _deliver(self, reply: ActiveReply, made: Made, now: float) -> None:
        """Under the lock. Whoever ended the reply while its row was made does not get the row."""
        state, sequence, request = self.state, reply.sequence, reply.request
        assert request is not None
        if reply.ended:
            return
        if reply.abandoned:
            state.end(reply, stop="interrupted")
        elif isinstance(made, OutOfPages):
            state.end(reply, stop="pages")
        elif isinstance(made, MossliveError):
            state.end(reply, error=made)
        else:
            sequence.rows.append(made)
            speech, follows = request.mode == "audio", request.coming_mode == "audio"
            self.missed += reply.take(made, speech, follows, now)
            self.rows_made += 1
            reply.paused = reply.unread_rows >= state.settings.ahead_rows
            if request.stop:
                state.end(reply, stop=request.stop)
            else:
                state.wake_reader(reply)


def _each(
    jobs: Sequence[Job], call: Callable[[Sequence[Job]], list[Result | MossliveError]]
) -> list[Result | MossliveError]:
    """All at once; if that fails, one by one, so that whose fault it is fails alone."""
    try:
        return call(jobs)
    except EngineBroken:
        raise
    except Exception as error:
        if len(jobs) == 1:
            return [step_failed(error)]
        return [result for job in jobs for result in _each([job], call)]
