"""The state of a served engine: all sequences and page reservations, under one lock.

Callers change it through `EngineClient`, the engine thread through `EngineLoop`. It does not touch
page tables or tensors. Of event loops it knows only how to wake waiters.

Invariant: reserved pages never exceed free pages. Every row has its page, taken or reserved, before
it is computed. A running step takes pages from the pool without the lock, but only reserved ones.
So `pool_free` is the count of the last time no step ran; the engine thread updates it under the
lock.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from mosslive.cache import PagePool, PageTable
from mosslive.engine.errors import EngineBroken, Reason
from mosslive.engine.sequence import ActiveReply, ReplyStop, SequenceState, Waiter
from mosslive.engine.settings import EngineSettings
from mosslive.engine.step_costs import StepCosts
from mosslive.errors import MossliveError
from mosslive.rows import RowIds


class EngineState:
    """Used as `with state:`, which holds the lock and wakes waiters after its release. Callers of
    all methods except `fail` hold the lock."""

    def __init__(
        self,
        pool: PagePool,
        ids: RowIds,
        context_rows: int,
        settings: EngineSettings,
        clock: Callable[[], float],
    ) -> None:
        """`context_rows`: the most rows of one sequence."""
        self.pool, self.ids, self.context_rows = pool, ids, context_rows
        self.settings, self.clock = settings, clock
        self.sequences: dict[int, SequenceState] = {}  # all that have or may get pages
        self.active: dict[int, SequenceState] = {}  # those with work for a step
        self.changed: dict[int, SequenceState] = {}  # those whose table must be updated
        self.ended: list[ActiveReply] = []  # ended replies that the stepper must release
        self.reserved = 0  # pages, over all sequences
        self.pool_free = pool.free  # at the last count
        self.refusals: Counter[Reason] = Counter()
        self.decode_costs = StepCosts(settings.decode_guess_ms)
        self.failed_with: BaseException | None = None
        self.closing = False
        # Wakes the engine thread. A sequence in it has lost its owner. Finalisers put it here at
        # any time, also while their thread holds the lock.
        self.inbox: SimpleQueue[SequenceState | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._to_wake: list[Waiter] = []
        self._keys = 0

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        woken, self._to_wake = self._to_wake, []
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
        """Makes the engine thread update this sequence before its next step."""
        self.changed[sequence.key] = self.active[sequence.key] = sequence
        self.inbox.put(None)

    def update_reservation(self, sequence: SequenceState) -> None:
        """Must follow every change of a field that `pages_to_reserve` reads."""
        reserved = sequence.pages_to_reserve(0, self.pool.page_size)
        self.reserved += reserved - sequence.reserved
        sequence.reserved = reserved

    def count_pool(self) -> None:
        """Called after all tables were counted, while no step runs."""
        self.pool_free = self.pool.free

    @property
    def free_pages(self) -> int:
        """Pages neither taken nor reserved."""
        return self.pool_free - self.reserved

    def count_replies(self) -> int:
        """Without speculative ones: they end first if pages run out."""
        return sum(not reply.speculative for reply in self._replies())

    def count_speaking(self, speculative: bool = False) -> int:
        """`speculative`: count speculative ones too."""
        replies = (reply for reply in self._replies() if reply.kind == "speech")
        return sum(speculative or not reply.speculative for reply in replies)

    def ahead_rows(self, reply: ActiveReply) -> int:
        """Unread rows at which the reply pauses."""
        settings = self.settings
        return max(1, settings.first_rows) if reply.speculative else settings.ahead_rows

    def _replies(self) -> Iterator[ActiveReply]:
        return (sequence.reply for sequence in self.active.values() if sequence.reply)

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
        """Removes rows that could not be computed and ends the reply that waits for them."""
        del sequence.rows[sequence.computed :]
        if sequence.reply:
            self.end(sequence.reply, error=error)
        else:
            sequence.error = error
        self.wake_settled(sequence)

    def wake_reader(self, reply: ActiveReply) -> None:
        """Wakes the reader of a reply."""
        if reply.reader:
            self._to_wake.append(reply.reader)
            reply.reader = None

    def wake_settled(self, sequence: SequenceState) -> None:
        """Wakes the callers of `settled`, which check again."""
        self._to_wake += sequence.waiters
        sequence.waiters.clear()

    def fail(self, error: BaseException) -> None:
        """Records a permanent failure: all waiters and all later calls get `EngineBroken`."""
        with self:
            self.failed_with = error
            for sequence in self.sequences.values():
                if sequence.reply:
                    self.end(sequence.reply, error=self.failure())
                self.wake_settled(sequence)

    def failure(self) -> EngineBroken:
        error = EngineBroken(f"the engine failed and must be loaded again: {self.failed_with!r}")
        error.__cause__ = self.failed_with
        return error


def wake(waiters: list[Waiter]) -> None:
    """Wakes waiters with one call per event loop."""
    loops: dict[int, list[Waiter]] = {}
    for waiter in waiters:
        loops.setdefault(id(waiter.loop), []).append(waiter)
    for group in loops.values():
        try:
            group[0].loop.call_soon_threadsafe(_set_results, group)
        except RuntimeError:  # the loop is closed, so its waiters are gone
            continue


def _set_results(waiters: list[Waiter]) -> None:
    for waiter in waiters:
        if not waiter.future.done():
            waiter.future.set_result(None)
