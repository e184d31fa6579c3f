"""The books of a served engine: every conversation, every promise of a page, under one lock.

Owners write in them through the `Desk`, the device thread through the `Device`. Nothing here
touches a table or a tensor, and of event loops it only wakes those who wait.

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
from mosslive.engine.costs import Costs
from mosslive.engine.line import Line, Making, ReplyStop, Waiter
from mosslive.engine.refusals import EngineBroken, Reason
from mosslive.engine.settings import EngineSettings
from mosslive.errors import MossliveError
from mosslive.rows import RowIds


class Books:
    """Used as `with books:`, which holds the lock, and wakes whom there is news for when it is free
    again. All methods but `break_down` are called with the lock held."""

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
        self.lines: dict[int, Line] = {}  # all that hold or may hold pages
        self.active: dict[int, Line] = {}  # those a step may serve
        self.changed: dict[int, Line] = {}  # those whose table has to follow
        self.ended: list[Making] = []  # replies a stepper may still keep something for
        self.promised = 0  # pages, the sum over all lines
        self.pool_free = pool.free  # as of the last count
        self.refusals: Counter[Reason] = Counter()
        self.decode = Costs(settings.decode_guess_ms)
        self.broken: BaseException | None = None
        self.closing = False
        # Wakes the device thread. A line in it has lost its owner: finalisers may put at any time,
        # also in the middle of anything that holds the lock.
        self.inbox: SimpleQueue[Line | None] = SimpleQueue()
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

    def add(self, line: Line | None = None) -> Line:
        line = line or Line(0, PageTable(self.pool))
        self._keys += 1
        line.key = self._keys
        self.lines[line.key] = line
        return line

    def touch(self, line: Line) -> None:
        """Has the device thread look at a line before its next step."""
        self.changed[line.key] = self.active[line.key] = line
        self.inbox.put(None)

    def count_promise(self, line: Line) -> None:
        """After any change to what a line's promise rests on."""
        promised = line.need(0, self.pool.page_size)
        self.promised += promised - line.promised
        line.promised = promised

    def count_pool(self) -> None:
        """After all tables were counted, and no step runs."""
        self.pool_free = self.pool.free

    @property
    def free_pages(self) -> int:
        """Neither taken nor promised."""
        return self.pool_free - self.promised

    def replies(self) -> int:
        return sum(line.making is not None for line in self.active.values())

    def speaking(self) -> int:
        makings = (line.making for line in self.active.values())
        return sum(making is not None and making.kind == "speech" for making in makings)

    def end(
        self, making: Making, stop: ReplyStop | None = None, error: MossliveError | None = None
    ) -> None:
        making.stop, making.error = stop, error
        making.line.making = None
        self.ended.append(making)
        self.ring(making)
        self.ring_settled(making.line)

    def interrupt(self, line: Line) -> None:
        if line.making:
            self.end(line.making, stop="interrupted")
            self.touch(line)

    def drop_abandoned(self, line: Line) -> None:
        if line.making and line.making.abandoned:
            self.end(line.making, stop="interrupted")

    def close(self, line: Line) -> None:
        if not line.closed:
            self.interrupt(line)
            line.closed = True
            self.touch(line)

    def lose(self, line: Line, error: MossliveError) -> None:
        """Rows that could not be computed are taken out; the reply that waits for them ends."""
        del line.rows[line.computed :]
        if line.making:
            self.end(line.making, error=error)
        else:
            line.error = error
        self.ring_settled(line)

    def ring(self, making: Making) -> None:
        """Wakes the reader of a reply."""
        if making.reader:
            self._woken.append(making.reader)
            making.reader = None

    def ring_settled(self, line: Line) -> None:
        """Wakes whoever waits for a line to settle; they look again."""
        self._woken += line.waiters
        line.waiters.clear()

    def break_down(self, error: BaseException) -> None:
        """For good: whoever waits is told, and so is whoever calls later."""
        with self:
            self.broken = error
            for line in self.lines.values():
                if line.making:
                    self.end(line.making, error=self.breakdown())
                self.ring_settled(line)

    def breakdown(self) -> EngineBroken:
        error = EngineBroken(f"the engine broke down and must be loaded again: {self.broken!r}")
        error.__cause__ = self.broken
        return error


def wake(waiters: list[Waiter]) -> None:
    """One call into each event loop, however many wait there."""
    loops: dict[int, list[Waiter]] = {}
    for waiter in waiters:
        loops.setdefault(id(waiter.loop), []).append(waiter)
    for some in loops.values():
        try:
            some[0].loop.call_soon_threadsafe(_tell, some)
        except RuntimeError:  # that loop is closed, so nobody waits there any more
            continue


def _tell(waiters: list[Waiter]) -> None:
    for waiter in waiters:
        if not waiter.news.done():
            waiter.news.set_result(None)
