"""Where owners of conversations are served: checked, refused with a reason, or written down.

The device thread follows within one step. The lock is held for a moment only and nothing here
waits, so an event loop may call any of it; what may wait gets a `Waiter` to sleep on.
"""

from collections.abc import Callable

from mosslive.cache import PageTable
from mosslive.config import Sampling
from mosslive.engine.books import Books
from mosslive.engine.line import Line, Making, Waiter
from mosslive.engine.refusals import Busy, EngineFull, Reason
from mosslive.engine.schedule import breaks_deadlines, headroom_pages
from mosslive.errors import MossliveError
from mosslive.rows import Row, RowsError, first_mode, next_mode


class Desk:
    def __init__(self, books: Books) -> None:
        self.books = books

    def open(self) -> Line:
        with self.books:
            self._check_open(None)
            return self.books.add()

    def append(self, line: Line, rows: list[Row]) -> None:
        with self.books:
            self._check_idle(line, "append")
            self._append(line, rows)
            self.books.touch(line)

    def reply(self, line: Line, sampling: Sampling, prefix: list[Row]) -> Making:
        books = self.books
        with books:
            self._check_idle(line, "reply")
            last = (prefix or line.rows)[-1:]
            if not last:
                raise RowsError("the conversation is empty; append rows before the reply")
            if len(line.rows) + len(prefix) >= books.longest:
                raise self._full("context", f"no position is left of {books.longest}; truncate")
            mode = next_mode(first_mode(last[0], books.ids), last[0], books.ids)
            if mode == "audio":
                self._check_deadlines()
            self._append(line, prefix, new_replies=1)
            now = books.clock()
            kind = "speech" if mode == "audio" else mode
            line.making = Making(line, sampling, kind, asked_at=now, since=now)
            books.touch(line)
            return line.making

    def truncate(self, line: Line, length: int) -> None:
        with self.books:
            self._check_open(line)
            if type(length) is not int or not 0 <= length <= len(line.rows):
                raise RowsError(f"truncate to {length!r} rows; allowed: 0..{len(line.rows)}")
            self._cut(line, length)
            self.books.touch(line)

    def rewrite(self, line: Line, length: int, rows: list[Row]) -> None:
        """`truncate` and `append` in one; if the rows are refused, nothing is changed but that a
        reply being made has ended. The line's own pages serve the new rows, so a line that does
        not become longer is never refused for pages."""
        with self.books:
            self._check_open(line)
            if not 0 <= length <= len(line.rows):
                raise RowsError(f"truncate to {length!r} rows; allowed: 0..{len(line.rows)}")
            self.books.interrupt(line)
            before = line.rows[:], line.cut, line.computed, line.shared, line.returning, line.error
            self._cut(line, length)
            try:
                if rows:
                    self._append(line, rows)
            except EngineFull:
                line.rows, line.cut, line.computed, line.shared, line.returning, line.error = before
                self.books.count_promise(line)
                raise
            self.books.touch(line)

    def fork(self, line: Line) -> Line:
        books = self.books
        with books:
            self._check_open(line)
            self._check_open(None)
            self._say_error(line)
            twin = Line(
                key=0,
                table=PageTable(books.pool),
                rows=line.rows[:],
                cut=min(line.cut, len(line.rows)),
                computed=line.computed,
                shared=True,
                parent=line,
            )
            # Rows that wait for pages wait twice, and who writes first after the fork needs a page
            # of its own: also the row that a step may be making at this moment.
            size, coming = books.pool.page_size, int(line.making is not None)
            shared, line.shared = line.shared, True
            mine = max(line.need(coming, size), line.promised)
            try:
                pages = twin.pages_for(0, size) + mine - line.promised
                self._check_pages(pages, books.replies(), "a fork")
            except EngineFull:
                line.shared = shared
                raise
            line.claimed = mine if coming else line.claimed
            line.unborn.append(books.add(twin))
            books.count_promise(line)
            books.count_promise(twin)
            books.touch(twin)
            return twin

    def interrupt(self, line: Line) -> None:
        with self.books:
            self.books.interrupt(line)

    def cancel(self, making: Making) -> None:
        with self.books:
            if not making.ended:
                self.books.interrupt(making.line)

    def close(self, line: Line) -> None:
        with self.books:
            self.books.close(line)

    def close_all(self) -> None:
        """No more work: every reply that is being made ends with a refusal."""
        books = self.books
        with books:
            books.closing = True
            for line in list(books.lines.values()):
                if line.making:
                    books.end(line.making, error=EngineFull("closed", "the engine was closed"))
                books.close(line)
            books.inbox.put(None)

    def next_row(self, making: Making, sleeper: Callable[[], Waiter]) -> Row | Waiter | None:
        """The next row, None after the last, or a waiter for news. An interrupted reply gives out
        no more rows, though they stand in the conversation."""
        books = self.books
        with books:
            if making.stop != "interrupted" and making.unread:
                row = making.rows[making.given]
                making.given += 1
                if making.resting and making.unread <= books.settings.ahead_rows // 2:
                    making.resume(books.clock())
                    books.inbox.put(None)
                return row
            if making.error:
                raise making.error
            if making.stop:
                return None
            if making.reader:
                raise Busy("another task reads this reply; one reader at a time")
            making.reader = sleeper()
            return making.reader

    def settle(self, line: Line, sleeper: Callable[[], Waiter]) -> Waiter | None:
        """None if everything is computed; else a waiter for the next news."""
        with self.books:
            if self.books.broken is not None:
                raise self.books.breakdown()
            self._say_error(line)
            if line.settled:
                return None
            self._want(line)
            line.waiters.append(sleeper())
            self.books.touch(line)
            return line.waiters[-1]

    def why_none(self) -> str | None:
        """Why a reply could not begin now although no other is being made; None if one could, or if
        some are being made."""
        books = self.books
        with books:
            if books.broken is not None:
                return str(books.breakdown())
            if books.replies():
                return None
            headroom = headroom_pages(1, books.pool.page_size, books.settings)
            if headroom >= books.free_pages:
                return (
                    f"no reply has room: it needs {headroom} pages of headroom, with "
                    f"{books.free_pages} of {books.pool.total} free"
                )
            return self._missed_deadlines(1)

    # All below with the lock held.

    def _cut(self, line: Line, length: int) -> None:
        self.books.interrupt(line)
        line.error = None
        if length < len(line.rows):
            line.cut_at(length)
            self.books.count_promise(line)

    def _append(self, line: Line, rows: list[Row], new_replies: int = 0) -> None:
        """Rows that need no further page are refused only if a reply begins with them."""
        length = len(line.rows) + len(rows)
        if length > self.books.longest:
            raise self._full("context", f"{length} rows; the context holds {self.books.longest}")
        pages = line.need(len(rows), self.books.pool.page_size) - line.promised
        if pages > 0 or new_replies:
            self._check_pages(pages, self.books.replies() + new_replies, f"{len(rows)} rows")
        self._want(line)
        line.rows += rows
        self.books.count_promise(line)

    def _want(self, line: Line) -> None:
        if not line.wanted:
            line.wanted, line.heard_at = True, self.books.clock()

    def _check_open(self, line: Line | None) -> None:
        """None: a new conversation is asked for."""
        books = self.books
        if books.broken is not None:
            raise books.breakdown()
        if books.closing or (line and line.closed):
            what = "engine" if books.closing else "conversation"
            raise self._full("closed", f"the {what} is closed")
        most = books.settings.max_conversations
        if line is None and len(books.lines) >= most:
            raise self._full("conversations", f"{most} conversations are open, as many as allowed")

    def _check_idle(self, line: Line, what: str) -> None:
        self._check_open(line)
        self.books.drop_abandoned(line)
        if line.making:
            raise Busy(f"a reply is being made; let it end or interrupt it before you {what}")
        self._say_error(line)

    def _say_error(self, line: Line) -> None:
        if line.error:
            raise MossliveError(
                f"rows after the first {len(line.rows)} were lost ({line.error}); truncate to say "
                f"where to go on"
            ) from line.error

    def _check_pages(self, pages: int, replies: int, what: str) -> None:
        books = self.books
        headroom = headroom_pages(replies, books.pool.page_size, books.settings)
        if pages + headroom > books.free_pages:
            raise self._full(
                "pages",
                f"{what}: {pages} pages, and {headroom} as headroom for {replies} replies, with "
                f"{books.free_pages} of {books.pool.total} free; truncate or close a conversation",
            )

    def _check_deadlines(self) -> None:
        if message := self._missed_deadlines(self.books.speaking() + 1):
            raise self._full("deadlines", message)

    def _missed_deadlines(self, speaking: int) -> str | None:
        """Why `speaking` speech replies at once are too many; None if they are not."""
        settings, decode, now = self.books.settings, self.books.decode, self.books.clock()
        if not breaks_deadlines(speaking, decode, now, settings):
            return None
        step_ms = decode.seconds(speaking, now) * 1e3
        return (
            f"{speaking} speech replies at once would take {step_ms:.0f} ms a step; allowed: "
            f"{settings.max_speaking} replies, and {settings.longest_step_s * 1e3:.0f} ms"
        )

    def _full(self, reason: Reason, message: str) -> EngineFull:
        self.books.refusals[reason] += 1
        return EngineFull(reason, message)
