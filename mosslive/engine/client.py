"""The calls of conversation owners: each is checked, then refused with a reason or recorded.

Runs on the caller's thread, for example an event loop. It holds the lock of `EngineState` only
briefly and never waits for the model. The engine thread carries out recorded calls within one step.
A call that may have to wait returns a `Waiter` to await.
"""

from collections.abc import Callable

from mosslive.cache import PageTable
from mosslive.config import Sampling
from mosslive.engine.errors import Busy, EngineFull, Reason
from mosslive.engine.scheduler import headroom_pages, misses_deadlines
from mosslive.engine.sequence import ActiveReply, SequenceState, Waiter
from mosslive.engine.state import EngineState
from mosslive.errors import MossliveError
from mosslive.rows import Row, RowsError, first_mode, next_mode


class EngineClient:
    def __init__(self, state: EngineState) -> None:
        self.state = state

    def open(self) -> SequenceState:
        with self.state:
            self._check_open(None)
            return self.state.add()

    def append(self, sequence: SequenceState, rows: list[Row]) -> None:
        with self.state:
            self._check_idle(sequence, "append")
            self._append(sequence, rows)
            self.state.mark_changed(sequence)

    def reply(
        self,
        sequence: SequenceState,
        sampling: Sampling,
        prefix: list[Row],
        speculative: bool = False,
    ) -> ActiveReply:
        state = self.state
        with state:
            self._check_idle(sequence, "reply")
            last = (prefix or sequence.rows)[-1:]
            if not last:
                raise RowsError("the conversation is empty; append rows before the reply")
            if len(sequence.rows) + len(prefix) >= state.context_rows:
                raise self._full(
                    "context",
                    f"no position is left of {state.context_rows}; truncate the conversation",
                )
            mode = next_mode(first_mode(last[0], state.ids), last[0], state.ids)
            if mode == "audio":
                self._check_deadlines(speculative)
            # Beside a speculative reply every other conversation can still begin one.
            self._append(sequence, prefix, len(state.sequences) if speculative else 1)
            now = state.clock()
            kind = "speech" if mode == "audio" else mode
            sequence.reply = ActiveReply(
                sequence, sampling, kind, now, waiting_since=now, speculative=speculative
            )
            state.mark_changed(sequence)
            return sequence.reply

    def truncate(self, sequence: SequenceState, length: int) -> None:
        with self.state:
            self._check_open(sequence)
            if type(length) is not int or not 0 <= length <= len(sequence.rows):
                raise RowsError(f"truncate to {length!r} rows; allowed: 0..{len(sequence.rows)}")
            self._truncate(sequence, length)
            self.state.mark_changed(sequence)

    def rewrite(self, sequence: SequenceState, length: int, rows: list[Row]) -> None:
        """`truncate` and `append` in one call. If the rows are refused, nothing changes, except
        that an active reply ends. The sequence's own pages serve the new rows, so a sequence that
        does not become longer is never refused for pages."""
        with self.state:
            self._check_open(sequence)
            if not 0 <= length <= len(sequence.rows):
                raise RowsError(f"truncate to {length!r} rows; allowed: 0..{len(sequence.rows)}")
            self.state.interrupt(sequence)
            before = (
                sequence.rows[:],
                sequence.truncated_to,
                sequence.computed,
                sequence.shared,
                sequence.pages_to_free,
                sequence.error,
            )
            self._truncate(sequence, length)
            try:
                if rows:
                    self._append(sequence, rows)
            except EngineFull:
                (
                    sequence.rows,
                    sequence.truncated_to,
                    sequence.computed,
                    sequence.shared,
                    sequence.pages_to_free,
                    sequence.error,
                ) = before
                self.state.update_reservation(sequence)
                raise
            self.state.mark_changed(sequence)

    def fork(self, sequence: SequenceState) -> SequenceState:
        state = self.state
        with state:
            self._check_open(sequence)
            self._check_open(None)
            self._raise_lost_rows(sequence)
            forked = SequenceState(
                key=0,
                table=PageTable(state.pool),
                rows=sequence.rows[:],
                truncated_to=min(sequence.truncated_to, len(sequence.rows)),
                computed=sequence.computed,
                shared=True,
                parent=sequence,
            )
            # Both sequences need pages for the pending rows. The first to write after the fork
            # needs a copy of the last page; that may be the row of the running step.
            size, next_rows = state.pool.page_size, int(sequence.reply is not None)
            shared, sequence.shared = sequence.shared, True
            own = max(sequence.pages_to_reserve(next_rows, size), sequence.reserved)
            try:
                pages = forked.pages_for(0, size) + own - sequence.reserved
                self._check_pages(pages, state.count_replies(), "a fork")
            except EngineFull:
                sequence.shared = shared
                raise
            sequence.step_pages = own if next_rows else sequence.step_pages
            sequence.pending_forks.append(state.add(forked))
            state.update_reservation(sequence)
            state.update_reservation(forked)
            state.mark_changed(forked)
            return forked

    def interrupt(self, sequence: SequenceState) -> None:
        with self.state:
            self.state.interrupt(sequence)

    def cancel(self, reply: ActiveReply) -> None:
        with self.state:
            if not reply.ended:
                self.state.interrupt(reply.sequence)

    def adopt(self, reply: ActiveReply) -> None:
        """A speculative reply is one like any other from now on."""
        with self.state:
            if reply.speculative:
                reply.adopt(self.state.clock())
                self._resume(reply)

    def close(self, sequence: SequenceState) -> None:
        with self.state:
            self.state.close(sequence)

    def close_all(self) -> None:
        """Ends every active reply with `EngineFull` ("closed") and closes all sequences."""
        state = self.state
        with state:
            state.closing = True
            for sequence in list(state.sequences.values()):
                if sequence.reply:
                    state.end(sequence.reply, error=EngineFull("closed", "the engine was closed"))
                state.close(sequence)
            state.inbox.put(None)

    def next_row(self, reply: ActiveReply, new_waiter: Callable[[], Waiter]) -> Row | Waiter | None:
        """Returns the next row, None after the last, or a waiter. An interrupted reply returns no
        more rows, although they stay in the conversation."""
        state = self.state
        with state:
            if reply.stop != "interrupted" and reply.unread_rows:
                row = reply.rows[reply.delivered]
                reply.delivered += 1
                self._resume(reply)
                return row
            if reply.error:
                raise reply.error
            if reply.stop:
                return None
            if reply.reader:
                raise Busy("another task reads this reply; one reader at a time")
            reply.reader = new_waiter()
            return reply.reader

    def settle(self, sequence: SequenceState, new_waiter: Callable[[], Waiter]) -> Waiter | None:
        """Returns None if all rows are computed, else a waiter."""
        with self.state:
            if self.state.failed_with is not None:
                raise self.state.failure()
            self._raise_lost_rows(sequence)
            if sequence.settled:
                return None
            self._mark_pending(sequence)
            sequence.waiters.append(new_waiter())
            self.state.mark_changed(sequence)
            return sequence.waiters[-1]

    def unavailable_reason(self) -> str | None:
        """Returns why no reply could start now although none is active; None if one could start,
        or if some are active."""
        state = self.state
        with state:
            if state.failed_with is not None:
                return str(state.failure())
            if state.count_replies():
                return None
            headroom = headroom_pages(1, state.pool.page_size, state.settings)
            if headroom >= state.free_pages:
                return (
                    f"no reply can start: one needs {headroom} pages of headroom, and "
                    f"{state.free_pages} of {state.pool.total} are free"
                )
            return self._missed_deadlines(1)

    # Callers of the methods below hold the lock.

    def _resume(self, reply: ActiveReply) -> None:
        """Ends the pause of a reply that few rows wait of."""
        if reply.paused and reply.unread_rows <= self.state.ahead_rows(reply) // 2:
            reply.resume(self.state.clock())
            self.state.inbox.put(None)

    def _truncate(self, sequence: SequenceState, length: int) -> None:
        self.state.interrupt(sequence)
        sequence.error = None
        if length < len(sequence.rows):
            sequence.truncate(length)
            self.state.update_reservation(sequence)

    def _append(self, sequence: SequenceState, rows: list[Row], new_replies: int = 0) -> None:
        """Checks pages only if the rows need a new one, or if a reply starts with them."""
        length = len(sequence.rows) + len(rows)
        if length > self.state.context_rows:
            raise self._full(
                "context",
                f"{length} rows; the context holds {self.state.context_rows}; append fewer",
            )
        pages = sequence.pages_to_reserve(len(rows), self.state.pool.page_size) - sequence.reserved
        if pages > 0 or new_replies:
            self._check_pages(pages, self.state.count_replies() + new_replies, f"{len(rows)} rows")
        self._mark_pending(sequence)
        sequence.rows += rows
        self.state.update_reservation(sequence)

    def _mark_pending(self, sequence: SequenceState) -> None:
        if not sequence.has_pending:
            sequence.has_pending, sequence.pending_since = True, self.state.clock()

    def _check_open(self, sequence: SequenceState | None) -> None:
        """`sequence`: None for a new conversation."""
        state = self.state
        if state.failed_with is not None:
            raise state.failure()
        if state.closing or (sequence and sequence.closed):
            what = "engine" if state.closing else "conversation"
            raise self._full("closed", f"the {what} is closed")
        most = state.settings.max_conversations
        if sequence is None and len(state.sequences) >= most:
            raise self._full(
                "conversations", f"{most} conversations are open; allowed: {most}; close one first"
            )

    def _check_idle(self, sequence: SequenceState, what: str) -> None:
        self._check_open(sequence)
        self.state.drop_abandoned(sequence)
        if sequence.reply:
            raise Busy(f"a reply is active; let it end or interrupt it before you {what}")
        self._raise_lost_rows(sequence)

    def _raise_lost_rows(self, sequence: SequenceState) -> None:
        if sequence.error:
            raise MossliveError(
                f"rows after the first {len(sequence.rows)} were lost ({sequence.error}); call "
                f"truncate to choose where to continue"
            ) from sequence.error

    def _check_pages(self, pages: int, replies: int, what: str) -> None:
        state = self.state
        headroom = headroom_pages(replies, state.pool.page_size, state.settings)
        if pages + headroom > state.free_pages:
            raise self._full(
                "pages",
                f"{what}: {pages} pages needed, and {headroom} as headroom for {replies} replies; "
                f"{state.free_pages} of {state.pool.total} are free; truncate or close some",
            )

    def _check_deadlines(self, speculative: bool) -> None:
        if message := self._missed_deadlines(self.state.count_speaking(speculative) + 1):
            raise self._full("deadlines", message)

    def _missed_deadlines(self, speaking: int) -> str | None:
        """Returns why `speaking` speech replies at once are too many; None if they are not."""
        settings, decode, now = self.state.settings, self.state.decode_costs, self.state.clock()
        if not misses_deadlines(speaking, decode, now, settings):
            return None
        step_ms = decode.seconds(speaking, now) * 1e3
        return (
            f"{speaking} speech replies at once would take {step_ms:.0f} ms a step; allowed: "
            f"{settings.max_speaking} replies, and {settings.longest_step_s * 1e3:.0f} ms"
        )

    def _full(self, reason: Reason, message: str) -> EngineFull:
        self.state.refusals[reason] += 1
        return EngineFull(reason, message)
