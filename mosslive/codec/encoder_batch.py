"""Turns of many speakers, encoded in common steps while they are spoken, exact when they end.

Each turn gets what `EncoderStream` gives it alone, wherever the others stand. Sound waits on the
host until a step takes it; pages are taken with the blocks that need them. Knows nothing of
transport, sample rates or deadlines. One thread calls it, always with the same current stream.
Invariants: the device does all steps in the order of their launch; results are read in that order.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from itertools import islice

import numpy as np
from torch import Tensor

from mosslive.codec.encoder import Encoder
from mosslive.codec.encoder_pages import POOL_SECONDS, EncoderMemory, SegmentPages
from mosslive.codec.encoder_samples import LAST_SAMPLES, WINDOW_SAMPLES, SegmentSamples, windows
from mosslive.codec.encoder_steps import EncoderSteps, Readback, Rows
from mosslive.codec.encoder_stream import HeardTurn
from mosslive.codec.mel import check_pcm
from mosslive.errors import MossliveError

_MOST_BLOCKS = 8  # of one turn in one step: a backlog must not make the others wait

_END_BLOCKS = 64  # that a turn's end computes again, all of a turn of 5 s


class _Segment:
    """At most 30 s of a turn."""

    def __init__(self, pages: SegmentPages) -> None:
        self.pages = pages
        self.samples = SegmentSamples()
        self.live: list[int] = []  # codes that steps returned
        self.codes: list[int] = []  # exact, once it is ended
        self.ending = False  # its end is launched
        self.same_as: _Segment | None = None  # whose end is also that of this one

    @property
    def exact(self) -> list[int]:
        return self.same_as.codes if self.same_as else self.codes

    def copy(self, pages: SegmentPages) -> "_Segment":
        """The same segment up to now. Codes of steps that run come to both."""
        copied = _Segment(pages)
        copied.samples, copied.live = self.samples.copy(), self.live
        if self.ending:
            copied.ending, copied.same_as = True, self
        return copied

    @property
    def unheard(self) -> bool:
        """Whether its end is still to be launched."""
        return bool(self.samples.count) and not self.ending


class Turn:
    """One turn of one speaker; its caller only passes it back."""

    def __init__(self, segment: _Segment) -> None:
        self.segments = [segment]
        self.open = True  # takes sound
        self.cancelled = False

    @property
    def waiting(self) -> int:
        """Whole blocks that no step has taken."""
        return sum(segment.samples.whole for segment in self.segments) if self.open else 0


Results = dict[Turn, list[int] | HeardTurn]
_Heard = list[tuple[Turn, _Segment, int]]  # with the number of blocks
_Ending = list[tuple[Turn, _Segment]]
# Launches its first steps at once; yields what it waits for.
_Work = Generator[Readback, None, Results]


class Encoding:
    """Steps that are launched, and what becomes of them."""

    def __init__(self, work: _Work, advance: "Callable[[Encoding, bool], bool]") -> None:
        self._work, self._advance = work, advance
        self._awaits: Readback | None = None
        self._results: Results = {}
        self._error: Exception | None = None
        self.done = False
        self.proceed()

    def ready(self) -> bool:
        """Whether `result` returns at once; never waits for the device. Poll it: the end of a turn
        launches its second step here."""
        return self._advance(self, False)

    def result(self) -> Results:
        """Codes of each turn of `start`, the whole turn of `finish`; waits for the device. Turns
        that were cancelled meanwhile are left out."""
        self._advance(self, True)
        if self._error is not None:
            raise self._error
        return {turn: value for turn, value in self._results.items() if not turn.cancelled}

    def proceed(self, *, wait: bool = False) -> bool:
        """Does what can be done; False if the device is not ready for it."""
        if self._awaits is not None and not wait and not self._awaits.ready():
            return False
        try:
            self._awaits = next(self._work)
        except StopIteration as stop:
            self._results, self.done = stop.value, True
        except Exception as error:
            self._error, self.done = error, True
        return True


class EncoderBatch:
    def __init__(self, encoder: Encoder, pool_seconds: float | None = None) -> None:
        """pool_seconds: speech of all turns together that fits into memory."""
        self._dims = encoder.dims
        seconds = POOL_SECONDS if pool_seconds is None else pool_seconds
        self.memory = EncoderMemory(encoder, seconds)
        self._steps = EncoderSteps(encoder, self.memory)
        self._turns: dict[Turn, None] = {}  # in the order in which they began
        self._flight: deque[Encoding] = deque()

    def add(self) -> Turn:
        turn = Turn(_Segment(self.memory.open()))
        self._turns[turn] = None
        return turn

    def push(self, turn: Turn, pcm: Tensor) -> None:
        """pcm [n], any n, at 16 kHz, float in [-1, 1] or int16; kept on the host."""
        if not turn.open:
            raise MossliveError("sound pushed into a turn that was finished or cancelled")
        wave = check_pcm(pcm).cpu().numpy().copy()
        while len(wave):
            segment = turn.segments[-1]
            left = self._dims.segment_samples - segment.samples.count
            if not left:
                turn.segments.append(_Segment(self.memory.open()))
                continue
            segment.samples.push(wave[:left])
            wave = wave[left:]

    @property
    def ready(self) -> list[Turn]:
        """Turns with at least one whole block that no step has taken, the oldest first."""
        return [turn for turn in self._turns if turn.waiting]

    def record(self, most_turns: int) -> None:
        """Records the steps of so many turns on a GPU, so that no live step has to, and those of
        the end of a turn of 5 s."""
        self._steps.record(max(most_turns, _END_BLOCKS))

    def start(self, turns: Iterable[Turn]) -> Encoding:
        """Launches one step with the next blocks of these turns, several of a turn that has more.
        Turns without a whole block or without a free page are left out. Raises `PoolFull` if every
        turn needs a page and none is free."""
        moved = [turn for turn in dict.fromkeys(turns) if turn.waiting]
        most = min(_MOST_BLOCKS, max(1, self._steps.most_rows // max(len(moved), 1)))
        rows, heard, ending = Rows(), _Heard(), _Ending()
        for turn in moved:
            left = most
            for segment in turn.segments:
                whole = min(segment.samples.whole, left)
                count = min(whole, segment.pages.room - segment.samples.taken)
                if count:
                    self._take(segment, count, rows, len(heard))
                    heard.append((turn, segment, count))
                    left -= count
                if self._is_full(segment) and segment.unheard:
                    segment.ending = True
                    ending.append((turn, segment))
                if count < whole:
                    break
        if moved and not heard:
            self.memory.pool.require(1)
        return self._launch(self._work(rows, heard, ending, []))

    def finish(self, turns: Iterable[Turn]) -> Encoding:
        """Ends these turns together. The last block of each is filled up with silence. Raises
        `PoolFull` without an effect if there are too few pages."""
        turns = list(turns)
        if not all(turn.open for turn in turns) or len(set(turns)) < len(turns):
            raise MossliveError("a turn was finished twice, or finished after it was cancelled")
        ending = [(turn, part) for turn in turns for part in turn.segments if part.unheard]
        self.memory.pool.require(
            sum(segment.pages.missing(segment.samples.blocks) for _, segment in ending)
        )
        for turn in turns:
            turn.open = False
        for _, segment in ending:
            segment.ending = True
        return self._launch(self._work(Rows(), [], ending, turns))

    def fork(self, turn: Turn) -> Turn:
        """The same turn up to now, only to be finished: what would its codes be if it ended here?
        Of the result only `codes` counts. Raises `PoolFull` without an effect."""
        if not turn.open:
            raise MossliveError("a turn was forked after it was finished or cancelled")
        going_on = [segment for segment in turn.segments if not segment.ending]
        self.memory.pool.require(sum(len(segment.pages.held) for segment in going_on))
        copies = [
            segment.copy(self.memory.open() if segment.ending else self.memory.copy(segment.pages))
            for segment in turn.segments
        ]
        forked = Turn(copies[0])
        forked.segments = copies
        return forked

    def cancel(self, turn: Turn) -> None:
        """Frees all memory of a turn at once. Idempotent, and allowed at any time."""
        turn.open, turn.cancelled = False, True
        for segment in turn.segments:
            segment.pages.close()
        self._turns.pop(turn, None)

    def _launch(self, work: _Work) -> Encoding:
        encoding = Encoding(work, self._advance)
        self._flight.append(encoding)
        return encoding

    def _advance(self, encoding: Encoding, wait: bool) -> bool:
        """Results are read in the order of the launches: a turn's end needs its codes so far."""
        while not encoding.done:
            first = self._flight[0]
            if not first.done and not first.proceed(wait=wait):
                return False
            if first.done:
                self._flight.popleft()
        return True

    def _work(self, rows: Rows, heard: _Heard, ending: _Ending, finishing: list[Turn]) -> _Work:
        """A step of live blocks, and the end of segments: up to the first yield at once."""
        hearing, (measured, last) = self._steps.hear(rows), self._measure(ending)
        yield hearing
        live: dict[Turn, list[int]] = {}
        values = iter(hearing.codes())
        for turn, segment, count in heard:
            codes = list(islice(values, count))
            segment.live += codes
            live.setdefault(turn, []).extend(codes)
        if ending:
            yield measured
            firsts, loudest = measured.wait()[:, last].tolist()
            rows = Rows()
            for (turn, segment), first, value in zip(ending, firsts, loudest, strict=True):
                segment.codes = segment.live[: int(first)]
                if not turn.cancelled:
                    for block in range(int(first), segment.samples.blocks):
                        rows.add(segment.pages, block, loudest=value)
            revised = self._steps.revise(rows)
            for _, segment in ending:
                segment.pages.close()  # later steps come after this one
            yield revised
            values = iter(revised.codes())
            for turn, segment in ending:
                if not turn.cancelled:
                    missing = segment.samples.blocks - len(segment.codes)
                    segment.codes += islice(values, missing)
        results: Results = {**live}
        for turn in finishing:
            before = [code for segment in turn.segments for code in segment.live]
            exact = [code for segment in turn.segments for code in segment.exact]
            results[turn] = HeardTurn.compare(before, exact)
            self._turns.pop(turn, None)
        return results

    def _take(self, segment: _Segment, count: int, rows: Rows, group: int) -> None:
        """The next blocks of a segment, as rows."""
        first = segment.samples.taken
        segment.pages.grow(first + count)
        for index, window in enumerate(windows(segment.samples.take(count))):
            rows.add(segment.pages, first + index, window, group=group, before=first - 1)

    def _measure(self, ending: _Ending) -> tuple[Readback, list[int]]:
        """Launches the first step of the end of segments → its result, and its row of each."""
        rows, last = Rows(), list[int]()
        for group, (_, segment) in enumerate(ending):
            done = segment.samples.taken
            rest = segment.samples.take_rest()
            segment.pages.grow(segment.samples.blocks)
            for index, window in enumerate(windows(rest)):
                rows.add(segment.pages, done + index, window, group=group, before=done - 1)
            after = np.zeros(WINDOW_SAMPLES, np.float32)
            after[:LAST_SAMPLES] = rest[-LAST_SAMPLES:]
            last.append(len(rows))
            rows.add(segment.pages, -1, after, group=group, before=done - 1, done=done)
        return self._steps.measure(rows), last

    def _is_full(self, segment: _Segment) -> bool:
        samples = segment.samples
        return samples.count == self._dims.segment_samples and samples.taken == samples.blocks
