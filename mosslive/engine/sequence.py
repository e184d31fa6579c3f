"""The state of one conversation, and of one reply, shared by callers and the engine thread.

Plain data, guarded by the lock of `EngineState`. Only the engine thread uses the fields marked
"engine thread".

Invariant: the first min(len(table), truncated_to) rows of the table equal those of `rows`. So
callers may truncate and append while a step runs; the engine thread updates the table after it.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from mosslive.cache import PageTable
from mosslive.config import SECONDS_PER_CODE, Sampling
from mosslive.engine.request import Request, Stop
from mosslive.engine.scheduler import Candidate, Kind, advance_playout
from mosslive.errors import MossliveError
from mosslive.rows import Row

ReplyStop = Stop | Literal["interrupted"]

NOT_TRUNCATED = 1 << 62  # longer than any table


class Waiter(NamedTuple):
    """A coroutine that waits until the engine thread, or another caller, sets its future."""

    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[None]"


@dataclass(eq=False)
class ActiveReply:
    """One reply, active or ended."""

    sequence: "SequenceState"
    sampling: Sampling
    kind: Kind  # of its next row: text or speech
    arrived_at: float
    waiting_since: float  # arrival, or time of the latest row
    rows: list[Row] = field(default_factory=list)
    delivered: int = 0  # rows that the reader has
    spoken: int = 0  # rows of the current stretch of speech
    playout_start: float = 0.0  # of that stretch
    paused: bool = False  # it has `ahead_rows` unread rows
    speculative: bool = False  # until `adopt`: nobody listens, and it may be dropped
    stop: ReplyStop | None = None
    error: MossliveError | None = None
    abandoned: bool = False  # the reader is gone; a finaliser sets this without the lock
    reader: Waiter | None = None
    request: Request | None = None  # engine thread; set before the first row

    @property
    def ended(self) -> bool:
        return self.stop is not None or self.error is not None

    @property
    def unread_rows(self) -> int:
        return len(self.rows) - self.delivered

    def add(self, row: Row, speech: bool, speech_follows: bool, now: float) -> bool:
        """Adds a row computed at `now`. Returns True if it came after an underrun."""
        self.rows.append(row)
        self.waiting_since = now
        late = False
        if speech:
            self.spoken, self.playout_start, late = advance_playout(
                self.spoken, self.playout_start, now
            )
            if self.speculative:
                self.playout_start, late = now, False
        if not speech_follows:
            self.spoken = 0
        self.kind = "speech" if speech_follows else "text"
        return late

    def adopt(self, now: float) -> None:
        """The user has finished: the reply is played from now on, all its rows."""
        self.speculative = False
        self.playout_start = now

    def resume(self, now: float) -> None:
        """Ends a pause. The unread rows are the lead over playout from now on."""
        self.paused = False
        self.playout_start = now - (self.spoken - self.unread_rows) * SECONDS_PER_CODE


@dataclass(eq=False)
class SequenceState:
    """One conversation in the engine. (`Conversation` is the handle of its owner.)"""

    key: int
    table: PageTable  # engine thread
    rows: list[Row] = field(default_factory=list)
    truncated_to: int = NOT_TRUNCATED  # lowest truncation not yet applied to the table
    computed: int = 0  # valid rows of the table; fewer than it has while a step runs
    shared: bool = False  # the last page may be shared: writing after it may need a copy
    reserved: int = 0  # pages reserved for rows that have none yet
    step_pages: int = 0  # reserved pages that the running step may take, also after a truncation
    counted_pages: int = 0  # pages of the table at the last count
    pages_to_free: int = 0  # pages freed when the table follows `truncated_to`
    # Whether uncomputed rows are to be prefilled. The last row of a reply is not, until the next
    # `append` or `settled`.
    has_pending: bool = False
    pending_since: float = 0.0  # arrival of the oldest of them
    reply: ActiveReply | None = None  # the active reply
    error: MossliveError | None = None  # why rows were lost; raised until `truncate`
    closed: bool = False
    released: bool = False  # closed, and its pages are free
    parent: "SequenceState | None" = None  # of a fork without a table yet
    pending_forks: "list[SequenceState]" = field(default_factory=list)  # without a table yet
    waiters: list[Waiter] = field(default_factory=list)  # for `settled`

    @property
    def settled(self) -> bool:
        """Whether all appended rows are computed. They are, once a reply has its first row."""
        if self.closed:
            return self.released
        begun = self.reply is not None and bool(self.reply.rows)
        return begun or self.computed == len(self.rows)

    def pages_for(self, more: int, page_size: int) -> int:
        """Returns the pages needed for the rows without one and for `more` further rows."""
        length = len(self.rows) + more
        if length == self.computed:
            return 0
        new = -(-length // page_size) + -self.computed // page_size
        return new + (self.shared and self.computed % page_size != 0)

    def pages_to_reserve(self, more: int, page_size: int) -> int:
        """Returns the pages to reserve for the rows it has and for `more` further rows. Pages freed
        by a truncation serve the sequence's own new rows. So do the pages of a running step,
        because the table is truncated before new rows take pages."""
        return max(self.pages_for(more, page_size) - self.pages_to_free, self.step_pages, 0)

    def truncate(self, length: int) -> None:
        """Drops all rows from `length` on; the table follows later."""
        del self.rows[length:]
        self.truncated_to = min(self.truncated_to, length)
        if length < self.computed:
            self.computed = length
            self.shared = True  # the page at the cut may be shared by its content
        if self.pending_forks:
            return  # the forks keep the pages
        references, size = self.table.pool.references, self.table.pool.page_size
        # A running step may replace the last page by a reserved one.
        counted = self.counted_pages - (self.step_pages > 0)
        pages = self.table.pages[-(-self.truncated_to // size) : max(0, counted)]
        self.pages_to_free = sum(references[page] == 1 for page in pages)

    def candidate(self) -> Candidate | None:
        """Returns its work for the next step; None if it has none."""
        pending = len(self.rows) - self.computed
        reply = self.reply
        if reply is None:
            return (
                Candidate(self.key, "listening", pending, self.pending_since)
                if self.has_pending
                else None
            )
        if reply.request is None and pending:
            return Candidate(
                self.key,
                reply.kind,
                pending,
                reply.waiting_since,
                speculative=reply.speculative,
            )
        if reply.paused:
            return None
        return Candidate(
            self.key,
            reply.kind,
            0,
            reply.waiting_since,
            reply.spoken,
            reply.playout_start,
            reply.speculative,
        )
