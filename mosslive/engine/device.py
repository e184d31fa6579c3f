"""The device side of a served engine: follow the books, plan, run a step, hand out rows.

One thread owns the stepper and all tables; this is its code, whether that thread loops (`run`) or
a test makes one step after another. It holds the lock of the books around bookkeeping only, never
while the model runs.
"""

from collections.abc import Callable, Sequence
from queue import Empty
from typing import TypeVar

from mosslive.cache import OutOfPages
from mosslive.engine.books import Books
from mosslive.engine.costs import Costs
from mosslive.engine.courtesy import Courtesy
from mosslive.engine.health import Health
from mosslive.engine.line import UNCUT, Line, Making
from mosslive.engine.refusals import EngineBroken, StepFailed, step_failed
from mosslive.engine.request import Request
from mosslive.engine.schedule import (
    Growth,
    Limits,
    Plan,
    Want,
    headroom_pages,
    in_hurry,
    out_of_pages,
    plan,
)
from mosslive.engine.stepper import Made, Stepper
from mosslive.errors import MossliveError
from mosslive.rows import Row

Job = TypeVar("Job")
Result = TypeVar("Result")


class Device:
    def __init__(self, stepper: Stepper, books: Books, courtesy: Courtesy | None = None) -> None:
        """`courtesy`: of those who use the same device."""
        self.stepper = stepper
        self.books = books
        self.steps = 0
        self.rows_made = 0
        self.missed = 0  # rows that came after their listener had heard everything
        self.health = Health("the language model", books.clock)
        prefill = Costs(books.settings.prefill_guess_ms)
        self.limits = Limits(stepper.most_requests, stepper.most_rows, books.decode, prefill)
        self.guest = (courtesy or Courtesy()).join(lambda: books.inbox.put(None))

    def run(self) -> None:
        """Until the engine closes; if it breaks, whoever waits is told."""
        try:
            while not self.done:
                if self.guest.asked:
                    self.guest.give_way(self._in_hurry, self._take_mail)
                if not self.step() and not self.done:
                    self._take_mail()
        except BaseException as error:
            self.health.ended(error)
            self.books.break_down(error)
        finally:
            self.guest.leave()

    @property
    def done(self) -> bool:
        return self.books.closing and not self.books.lines

    def step(self) -> bool:
        """One step; False if there was nothing to do."""
        books, began = self.books, self.books.clock()
        self._take_all_mail()
        with books:
            self._follow()
            wants = self._wants()
            chosen = plan(wants, began, self.limits, books.settings)
            jobs = [self._claim(books.lines[key], rows) for key, rows in chosen.prefill]
            makings = self._promise(chosen)
            ended, books.ended = books.ended, []
        self.guest.say(in_hurry(wants, began, books.settings))
        for making in ended:
            if making.request:
                self.stepper.release(making.request)
        if jobs:
            began += self._prefill(jobs, makings)
        if makings:
            self._decode(makings, began)
        self.steps += bool(jobs or makings)
        return bool(jobs or makings or ended)

    def _in_hurry(self) -> bool | None:
        """For the others on the device. None: there is nothing to do."""
        books = self.books
        self._take_all_mail()
        with books:
            self._follow()
            wants = self._wants()
        return in_hurry(wants, books.clock(), books.settings) if wants else None

    def _take_all_mail(self) -> None:
        while self._take_mail(0):
            pass

    def _take_mail(self, most_s: float | None = None) -> bool:
        """Waits for some: at most so long, or until it comes."""
        try:
            orphan = self.books.inbox.get(most_s != 0, most_s)
        except Empty:
            return False
        if orphan:
            with self.books:
                self.books.close(orphan)
        return True

    # Bookkeeping; under the lock.

    def _follow(self) -> None:
        """Tables follow what callers wrote. Forks come first: what they share may go next."""
        changed = self.books.changed
        for line in changed.values():
            if line.parent:
                line.parent.unborn.remove(line)
                line.table, line.parent = line.parent.table.fork(), None
        fewer = any(line.closed or line.cut < UNCUT for line in changed.values())
        # All are cut before any adopts: pages that come back must not be found and held first.
        for line in changed.values():
            self._cut(line)
        for line in changed.values():
            if not len(line.table) and line.rows:
                line.table.adopt(line.rows)
            self._count(line)
        if fewer:  # what they gave up may be one other's alone now
            for line in self.books.lines.values():
                if line.shared:
                    self._count(line)
        changed.clear()
        self.books.count_pool()

    def _cut(self, line: Line) -> None:
        table = line.table
        if line.closed:
            line.rows.clear()
            line.gone = True
            self.books.lines.pop(line.key, None)
        table.truncate(min(line.cut, len(line.rows), len(table)))
        line.cut = UNCUT
        if len(table) < len(line.rows):
            table.own_last()  # rows are about to be written there

    def _count(self, line: Line) -> None:
        """After the table or the rows changed, and no step runs on them."""
        table = line.table
        line.computed, line.held = len(table), len(table.pages)
        line.shared = bool(line.unborn) or table.may_share_last
        line.claimed = line.returning = 0
        self.books.count_promise(line)
        if line.computed == len(line.rows):
            line.wanted = False
        if line.waiters and line.settled:
            self.books.ring_settled(line)

    def _wants(self) -> list[Want]:
        wants, active = [], self.books.active
        for line in list(active.values()):
            if line.making and line.making.abandoned:
                self.books.drop_abandoned(line)
            if line.making is None and not line.wanted:
                del active[line.key]
            elif want := line.want():
                wants.append(want)
        return wants

    def _claim(self, line: Line, rows: int) -> tuple[Line, list[Row]]:
        line.claimed = line.promised
        return line, line.rows[line.computed : line.computed + rows]

    def _promise(self, chosen: Plan) -> list[Making]:
        """The replies that get a row: those for whose coming row a page can be promised."""
        books, size = self.books, self.books.pool.page_size
        makings = [making for key in chosen.decode if (making := books.lines[key].making)]
        growing = []
        for making in makings:
            line = making.line
            line.claimed = line.pages_for(1, size)
            if line.claimed > line.promised:
                pages = line.claimed - line.promised
                growing.append(Growth(line.key, making.kind == "speech", making.asked_at, pages))
        if not growing:  # as in most steps: a page holds many rows
            return makings
        headroom = headroom_pages(books.speaking(), size, books.settings)
        for key in out_of_pages(growing, books.free_pages, headroom):
            line = books.lines[key]
            line.claimed = line.promised
            if line.making:
                books.end(line.making, stop="pages")
        for growth in growing:
            books.count_promise(books.lines[growth.key])
        return [making for making in makings if not making.ended]

    # The model; without the lock.

    def _prefill(self, jobs: list[tuple[Line, list[Row]]], makings: list[Making]) -> float:
        """Returns the seconds it took."""

        def compute(some: Sequence[tuple[Line, list[Row]]]) -> list[MossliveError | None]:
            self.stepper.prefill([(line.table, rows) for line, rows in some])
            return [None] * len(some)

        began = self.books.clock()
        results = _each(jobs, compute)
        seconds = self.books.clock() - began
        self._judge("prefill", results)
        self.limits.prefill.observe(sum(len(rows) for _, rows in jobs), seconds, began + seconds)
        with self.books:
            lost = [
                (line, error)
                for (line, _), error in zip(jobs, results, strict=True)
                if error and line.cut == UNCUT and not line.closed
            ]
            self._follow()
            for line, _ in jobs:
                self._count(line)
            for line, error in lost:
                self.books.lose(line, error)
                self._count(line)
            for making in makings:  # their rows are still to be made in this step
                if not making.ended:
                    making.line.claimed = making.line.pages_for(1, self.books.pool.page_size)
                    self.books.count_promise(making.line)
            self.books.count_pool()
        return seconds

    def _decode(self, makings: list[Making], began: float) -> None:
        """`began`: when the step did, as if there had been no prefill in it."""
        books = self.books
        # A caller may have ended some of them by now, and so may a prefill that failed.
        live = [making for making in makings if not making.ended and not making.abandoned]
        for making in live:
            if making.request is None:
                making.request = Request(
                    [], making.sampling, books.ids, making.line.table, books.longest
                )

        def decode(some: Sequence[Making]) -> list[Made]:
            requests = [making.request for making in some if making.request]
            for making, request in zip(some, requests, strict=True):
                if len(request.new_rows) != len(making.rows):
                    raise StepFailed("a step failed after it had made rows, and lost them")
            return self.stepper.decode(requests)

        typical = all(making.rows for making in live)  # a first row may run a tail over all
        results = _each(live, decode) if live else []
        self._judge("decode", results)
        now = books.clock()
        with books:
            for making, made in zip(live, results, strict=True):
                self._hand_out(making, made, now)
            self._follow()
            for making in makings:
                self._count(making.line)
            books.count_pool()
        if live and typical:
            now = books.clock()
            books.decode.observe(len(live), now - began, now)

    def _judge(self, kind: str, results: Sequence[object]) -> None:
        """A pass has failed if it did so for everybody in it. A lack of pages is not a failure."""
        errors = [result for result in results if isinstance(result, MossliveError)]
        failures = [error for error in errors if not isinstance(error, OutOfPages)]
        if len(errors) < len(results):
            self.health.succeeded(kind)
        elif failures:
            self.health.failed(kind, failures[0].__cause__ or failures[0])

    def _hand_out(self, making: Making, made: Made, now: float) -> None:
        """Under the lock. Whoever ended the reply while its row was made does not get the row."""
        books, line, request = self.books, making.line, making.request
        assert request is not None
        if making.ended:
            return
        if making.abandoned:
            books.end(making, stop="interrupted")
        elif isinstance(made, OutOfPages):
            books.end(making, stop="pages")
        elif isinstance(made, MossliveError):
            books.end(making, error=made)
        else:
            line.rows.append(made)
            speech, follows = request.mode == "audio", request.coming_mode == "audio"
            self.missed += making.take(made, speech, follows, now)
            self.rows_made += 1
            making.resting = making.unread >= books.settings.ahead_rows
            if request.stop:
                books.end(making, stop=request.stop)
            else:
                books.ring(making)


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
