"""What callers and the device thread share about one conversation, and about one reply.

Plain data under the lock of the `EngineState`; fields marked "device" belong to the engine
thread alone.

Invariant: the first min(len(table), cut) rows of the table are those of `rows`. So callers may cut
and append at once, while a step is running, and the device thread sets its table right afterwards.
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

UNCUT = 1 << 62  # longer than any table


class Waiter(NamedTuple):
    """A coroutine that sleeps until the device thread, or another caller, has news for it."""

    loop: asyncio.AbstractEventLoop
    news: "asyncio.Future[None]"


@dataclass(eq=False)
class ActiveReply:
    """One reply being made, or made."""

    sequence: "SequenceState"
    sampling: Sampling
    kind: Kind  # of its coming row: text or speech
    asked_at: float
    since: float  # when it was asked for, or its latest row made
    rows: list[Row] = field(default_factory=list)
    delivered: int = 0  # how many of them the reader has
    spoken: int = 0  # rows of the current stretch of speech, and when the first of them was made
    began: float = 0.0
    paused: bool = False  # too far ahead of its reader
    stop: ReplyStop | None = None
    error: MossliveError | None = None
    abandoned: bool = False  # the reader is gone; written without the lock, by a finaliser
    reader: Waiter | None = None
    request: Request | None = None  # device; from the first row on

    @property
    def ended(self) -> bool:
        return self.stop is not None or self.error is not None

    @property
    def unread_rows(self) -> int:
        return len(self.rows) - self.delivered

    def take(self, row: Row, speech: bool, speech_follows: bool, now: float) -> bool:
        """A row that was made now. True if its listener had run dry before it came."""
        self.rows.append(row)
        self.since = now
        late = False
        if speech:
            self.spoken, self.began, late = advance_playout(self.spoken, self.began, now)
        if not speech_follows:
            self.spoken = 0
        self.kind = "speech" if speech_follows else "text"
        return late

    def resume(self, now: float) -> None:
        """After a rest: what its reader has not taken yet is how far it is ahead."""
        self.paused = False
        self.began = now - (self.spoken - self.unread_rows) * SECONDS_PER_CODE


@dataclass(eq=False)
class SequenceState:
    """One conversation. (`Conversation` is what its owner holds.)"""

    key: int
    table: PageTable  # device
    rows: list[Row] = field(default_factory=list)
    cut: int = UNCUT  # the lowest truncation the table has not followed yet
    computed: int = 0  # rows of the table that count; behind the table while a step runs
    shared: bool = False  # whether writing after them may first need a page of its own
    reserved: int = 0  # pages for rows that have none yet
    step_pages: int = 0  # how many of them the step that runs now may take, whatever callers cut
    held: int = 0  # pages of the table when it was last counted
    returning: int = 0  # pages of the table that come back when it follows `cut`
    has_pending: bool = False  # somebody waits for all rows to be computed, or will soon
    heard_at: float = 0.0  # when the oldest of them came
    reply: ActiveReply | None = None  # the reply being made
    error: MossliveError | None = None  # why rows were lost; said until `truncate`
    closed: bool = False
    released: bool = False  # closed, and its pages are given back
    parent: "SequenceState | None" = None  # a fork whose table is not made yet
    pending_forks: "list[SequenceState]" = field(default_factory=list)  # such forks of this one
    waiters: list[Waiter] = field(default_factory=list)  # for `settled`

    @property
    def settled(self) -> bool:
        """Everything appended is computed; a reply that has begun rests on it."""
        if self.closed:
            return self.released
        begun = self.reply is not None and bool(self.reply.rows)
        return begun or self.computed == len(self.rows)

    def pages_for(self, more: int, page_size: int) -> int:
        """Pages to be taken for the rows that have none, and so many more."""
        length = len(self.rows) + more
        if length == self.computed:
            return 0
        new = -(-length // page_size) + -self.computed // page_size
        return new + (self.shared and self.computed % page_size != 0)

    def need(self, more: int, page_size: int) -> int:
        """Pages that must be promised for the rows it has and so many more. Pages that come back
        when the table follows a cut serve its own new rows; the pages of a running step do so
        too, since the table is cut before new rows take pages."""
        return max(self.pages_for(more, page_size) - self.returning, self.step_pages, 0)

    def cut_at(self, length: int) -> None:
        """Forgets all rows from `length` on; the table follows later."""
        del self.rows[length:]
        self.cut = min(self.cut, length)
        if length < self.computed:
            self.computed = length
            self.shared = True  # the page it was cut in may be known to others
        if self.pending_forks:
            return  # they keep the pages
        references, size = self.table.pool.references, self.table.pool.page_size
        # A running step may replace the last page by one that was promised.
        held = self.held - (self.step_pages > 0)
        pages = self.table.pages[-(-self.cut // size) : max(0, held)]
        self.returning = sum(references[page] == 1 for page in pages)

    def candidate(self) -> Candidate | None:
        """What it asks of the next step."""
        pending = len(self.rows) - self.computed
        reply = self.reply
        if reply is None:
            return (
                Candidate(self.key, "listening", pending, self.heard_at)
                if self.has_pending
                else None
            )
        if reply.request is None and pending:
            return Candidate(self.key, reply.kind, pending, reply.since)
        if reply.paused:
            return None
        return Candidate(self.key, reply.kind, 0, reply.since, reply.spoken, reply.began)
