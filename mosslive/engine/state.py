"""The books of a served engine: every conversation, every promise of a page, under one lock.

Owners write here through the `EngineClient`, the engine thread through the `EngineLoop`. Nothing
here touches a table or a tensor, and of event loops it only wakes those who wait.

Invariant: pages promised are never more than pages free. Every row in the books has its page, taken
or promised; a row is made only after its page was promised. A running step takes pages from the
pool without the lock, but only promised ones. So the free pages are those of the last count, which
the device thread makes under the lock when no step runs.
"""

import threading
from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue

from mosslive.cache import PagePool, PageTable
from mosslive.engine.errors import EngineBroken, Reason
from mosslive.engine.sequence import ActiveReply, ReplyStop, SequenceState, Waiter
from mosslive.engine.settings import EngineSettings
from mosslive.engine.step_costs import StepCosts
from mosslive.errors import MossliveError
from mosslive.rows import RowIds


class EngineState:
    """Used as `with state:`, which holds the lock, and wakes whom there is news for when it is free
    again. All methods but `fail` are called with the lock held."""

    def __init__(
        self,
        pool: PagePool,
        ids: RowIds,
        longest: int,
        settings: EngineSettings,
        clock: Callable[[], float],
    ) -> None:
        """`longest`: rows the context holds."""
        self.pool, self.ids, self.longest = pool, ids, longest
        self.settings, self.clock = settings, clock
        self.sequences: dict[int, SequenceState] = {}  # all that hold or may hold pages
        self.active: dict[int, SequenceState] = {}  # those a step may serve
        self.changed: dict[int, SequenceState] = {}  # those whose table has to follow
        self.ended: list[ActiveReply] = []  # replies a stepper may still keep something for
        self.reserved = 0  # pages, the sum over all lines
        self.pool_free = pool.free  # as of the last count
        self.refusals: Counter[Reason] = Counter()
        self.decode = StepCosts(settings.decode_guess_ms)
        self.failed_with: BaseException | None = None
        self.closing = False
        # Wakes the device thread. A line in it has lost its owner: finalisers may put at any time,
        # also in the middle of anything that holds the lock.
        self.inbox: SimpleQueue[SequenceState | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._woken: list[Waiter] = []
        self._keys = 0

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        woken, self._woken = self._woken, []
        self._lock.release()
        if woken:
            wake(woken)

    def add(self, sequence: SequenceState | None = None) -> SequenceState:
        sequence = sequence or SequenceState(0, PageTable(self.pool))
        self._keys += 1
        sequence.key = self._keys
        self.sequences[sequence.key] = sequence
        return sequence

    def mark_changed(self, sequence: SequenceState) -> None:
        """Has the device thread look at a line before its next step."""
        self.changed[sequence.key] = self.active[sequence.key] = sequence
        self.inbox.put(None)

    def update_reservation(self, sequence: SequenceState) -> None:
        """After any change to what a line's promise rests on."""
        reserved = sequence.need(0, self.pool.page_size)
        self.reserved += reserved - sequence.reserved
        sequence.reserved = reserved

    def count_pool(self) -> None:
        """After all tables were counted, and no step runs."""
        self.pool_free = self.pool.free

    @property
    def free_pages(self) -> int:
        """Neither taken nor promised."""
        return self.pool_free - self.reserved

    def count_replies(self) -> int:
        return sum(sequence.reply is not None for sequence in self.active.values())

    def count_speaking(self) -> int:
        replies = (sequence.reply for sequence in self.active.values())
        return sum(reply is not None and reply.kind == "speech" for reply in replies)

    def end(
        self, reply: ActiveReply, stop: ReplyStop | None = None, error: MossliveError | None = None
    ) -> None:
        reply.stop, reply.error = stop, error
        reply.sequence.reply = None
        self.ended.append(reply)
        self.wake_reader(reply)
        self.wake_settled(reply.sequence)

    def interrupt(self, sequence: SequenceState) -> None:
        if sequence.reply:
            self.end(sequence.reply, stop="interrupted")
            self.mark_changed(sequence)

    def drop_abandoned(self, sequence: SequenceState) -> None:
        if sequence.reply and sequence.reply.abandoned:
            self.end(sequence.reply, stop="interrupted")

    def close(self, sequence: SequenceState) -> None:
        if not sequence.closed:
            self.interrupt(sequence)
            sequence.closed = True
            self.mark_changed(sequence)

    def discard_failed_rows(self, sequence: SequenceState, error: MossliveError) -> None:
        """Rows that could not be computed are taken out; the reply that waits for them ends."""
        del sequence.rows[sequence.computed :]
        if sequence.reply:
            self.end(sequence.reply, error=error)
        else:
            sequence.error = error
        self.wake_settled(sequence)

    def wake_reader(self, reply: ActiveReply) -> None:
        """Wakes the reader of a reply."""
        if reply.reader:
            self._woken.append(reply.reader)
            reply.reader = None

    def wake_settled(self, sequence: SequenceState) -> None:
        """Wakes whoever waits for a line to settle; they look again."""
        self._woken += sequence.waiters
        sequence.waiters.clear()

    def fail(self, error: BaseException) -> None:
        """For good: whoever waits is told, and so is whoever calls later."""
        with self:
            self.failed_with = error
            for sequence in self.sequences.values():
                if sequence.reply:
                    self.end(sequence.reply, error=self.failure())
                self.wake_settled(sequence)

    def failure(self) -> EngineBroken:
        error = EngineBroken(
            f"the engine broke down and must be loaded again: {self.failed_with!r}"
        )
        error.__cause__ = self.failed_with
        return error


def wake(waiters: list[Waiter]) -> None:
    """One call into each event loop, however many wait there."""
    loops: dict[int, list[Waiter]] = {}
    for waiter in waiters:
        loops.setdefault(id(waiter.loop), []).append(waiter)
    for some in loops.values():
        try:
            some[0].loop.call_soon_threadsafe(_set_results, some)
        except RuntimeError:  # that loop is closed, so nobody waits there any more
            continue


def _set_results(waiters: list[Waiter]) -> None:
    for waiter in waiters:
        if not waiter.news.done():
            waiter.news.set_result(None)
