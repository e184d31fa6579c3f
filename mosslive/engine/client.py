"""Where owners of conversations are served: checked, refused with a reason, or written down.

The device thread follows within one step. The lock is held for a moment only and nothing here
waits, so an event loop may call any of it; what may wait gets a `Waiter` to sleep on.
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

    def reply(self, sequence: SequenceState, sampling: Sampling, prefix: list[Row]) -> ActiveReply:
        state = self.state
        with state:
            self._check_idle(sequence, "reply")
            last = (prefix or sequence.rows)[-1:]
            if not last:
                raise RowsError("the conversation is empty; append rows before the reply")
            if len(sequence.rows) + len(prefix) >= state.longest:
                raise self._full("context", f"no position is left of {state.longest}; truncate")
            mode = next_mode(first_mode(last[0], state.ids), last[0], state.ids)
            if mode == "audio":
                self._check_deadlines()
            self._append(sequence, prefix, new_replies=1)
            now = state.clock()
            kind = "speech" if mode == "audio" else mode
            sequence.reply = ActiveReply(sequence, sampling, kind, asked_at=now, since=now)
            state.mark_changed(sequence)
            return sequence.reply

    def truncate(self, sequence: SequenceState, length: int) -> None:
        with self.state:
            self._check_open(sequence)
            if type(length) is not int or not 0 <= length <= len(sequence.rows):
                raise RowsError(f"truncate to {length!r} rows; allowed: 0..{len(sequence.rows)}")
            self._cut(sequence, length)
            self.state.mark_changed(sequence)

    def rewrite(self, sequence: SequenceState, length: int, rows: list[Row]) -> None:
        """`truncate` and `append` in one; if the rows are refused, nothing is changed but that a
        reply being made has ended. The line's own pages serve the new rows, so a line that does
        not become longer is never refused for pages."""
        with self.state:
            self._check_open(sequence)
            if not 0 <= length <= len(sequence.rows):
                raise RowsError(f"truncate to {length!r} rows; allowed: 0..{len(sequence.rows)}")
            self.state.interrupt(sequence)
            before = (
                sequence.rows[:],
                sequence.cut,
                sequence.computed,
                sequence.shared,
                sequence.returning,
                sequence.error,
            )
            self._cut(sequence, length)
            try:
                if rows:
                    self._append(sequence, rows)
            except EngineFull:
                (
                    sequence.rows,
                    sequence.cut,
                    sequence.computed,
                    sequence.shared,
                    sequence.returning,
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
            twin = SequenceState(
                key=0,
                table=PageTable(state.pool),
                rows=sequence.rows[:],
                cut=min(sequence.cut, len(sequence.rows)),
                computed=sequence.computed,
                shared=True,
                parent=sequence,
            )
            # Rows that wait for pages wait twice, and who writes first after the fork needs a page
            # of its own: also the row that a step may be making at this moment.
            size, coming = state.pool.page_size, int(sequence.reply is not None)
            shared, sequence.shared = sequence.shared, True
            mine = max(sequence.need(coming, size), sequence.reserved)
            try:
                pages = twin.pages_for(0, size) + mine - sequence.reserved
                self._check_pages(pages, state.count_replies(), "a fork")
            except EngineFull:
                sequence.shared = shared
                raise
            sequence.step_pages = mine if coming else sequence.step_pages
            sequence.pending_forks.append(state.add(twin))
            state.update_reservation(sequence)
            state.update_reservation(twin)
            state.mark_changed(twin)
            return twin

    def interrupt(self, sequence: SequenceState) -> None:
        with self.state:
            self.state.interrupt(sequence)

    def cancel(self, reply: ActiveReply) -> None:
        with self.state:
            if not reply.ended:
                self.state.interrupt(reply.sequence)

    def close(self, sequence: SequenceState) -> None:
        with self.state:
            self.state.close(sequence)

    def close_all(self) -> None:
        """No more work: every reply that is being made ends with a refusal."""
        state = self.state
        with state:
            state.closing = True
            for sequence in list(state.sequences.values()):
                if sequence.reply:
                    state.end(sequence.reply, error=EngineFull("closed", "the engine was closed"))
                state.close(sequence)
            state.inbox.put(None)

    def next_row(self, reply: ActiveReply, new_waiter: Callable[[], Waiter]) -> Row | Waiter | None:
        """The next row, None after the last, or a waiter for news. An interrupted reply gives out
        no more rows, though they stand in the conversation."""
        state = self.state
        with state:
            if reply.stop != "interrupted" and reply.unread_rows:
                row = reply.rows[reply.delivered]
                reply.delivered += 1
                if reply.paused and reply.unread_rows <= state.settings.ahead_rows // 2:
                    reply.resume(state.clock())
                    state.inbox.put(None)
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
        """None if everything is computed; else a waiter for the next news."""
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

    def why_none(self) -> str | None:
        """Why a reply could not begin now although no other is being made; None if one could, or if
        some are being made."""
        state = self.state
        with state:
            if state.failed_with is not None:
                return str(state.failure())
            if state.count_replies():
                return None
            headroom = headroom_pages(1, state.pool.page_size, state.settings)
            if headroom >= state.free_pages:
                return (
                    f"no reply has room: it needs {headroom} pages of headroom, with "
                    f"{state.free_pages} of {state.pool.total} free"
                )
            return self._missed_deadlines(1)

    # All below with the lock held.

    def _cut(self, sequence: SequenceState, length: int) -> None:
        self.state.interrupt(sequence)
        sequence.error = None
        if length < len(sequence.rows):
            sequence.cut_at(length)
            self.state.update_reservation(sequence)

    def _append(self, sequence: SequenceState, rows: list[Row], new_replies: int = 0) -> None:
        """Rows that need no further page are refused only if a reply begins with them."""
        length = len(sequence.rows) + len(rows)
        if length > self.state.longest:
            raise self._full("context", f"{length} rows; the context holds {self.state.longest}")
        pages = sequence.need(len(rows), self.state.pool.page_size) - sequence.reserved
        if pages > 0 or new_replies:
            self._check_pages(pages, self.state.count_replies() + new_replies, f"{len(rows)} rows")
        self._mark_pending(sequence)
        sequence.rows += rows
        self.state.update_reservation(sequence)

    def _mark_pending(self, sequence: SequenceState) -> None:
        if not sequence.has_pending:
            sequence.has_pending, sequence.heard_at = True, self.state.clock()

    def _check_open(self, sequence: SequenceState | None) -> None:
        """None: a new conversation is asked for."""
        state = self.state
        if state.failed_with is not None:
            raise state.failure()
        if state.closing or (sequence and sequence.closed):
            what = "engine" if state.closing else "conversation"
            raise self._full("closed", f"the {what} is closed")
        most = state.settings.max_conversations
        if sequence is None and len(state.sequences) >= most:
            raise self._full("conversations", f"{most} conversations are open, as many as allowed")

    def _check_idle(self, sequence: SequenceState, what: str) -> None:
        self._check_open(sequence)
        self.state.drop_abandoned(sequence)
        if sequence.reply:
            raise Busy(f"a reply is being made; let it end or interrupt it before you {what}")
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
                f"{what}: {pages} pages, and {headroom} as headroom for {replies} replies, with "
                f"{state.free_pages} of {state.pool.total} free; truncate or close a conversation",
            )

    def _check_deadlines(self) -> None:
        if message := self._missed_deadlines(self.state.count_speaking() + 1):
            raise self._full("deadlines", message)

    def _missed_deadlines(self, speaking: int) -> str | None:
        """Why `speaking` speech replies at once are too many; None if they are not."""
        settings, decode, now = self.state.settings, self.state.decode, self.state.clock()
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
