"""The user's sound on its way to an ear: which ear, when each packet came, and on whose time.

Listening for speech costs about a hundredth of a core per microphone, more than an event loop that
serves a hundred of them has. So an ear works on a few shared threads, on one piece after the other,
and what it heard is told on the loop, in order; packets that come meanwhile are the next piece. A
call that must know what was heard `catch_up`s first, so to all others it is as if sound were heard
when it was pushed. Knows nothing of turns' content. Invariants: at most one thread has the ear; at
most `_BEHIND_S` of sound waits for it.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import Protocol

import torch
from torch import Tensor

from mosslive.config import refuse
from mosslive.talk.clock import Clock
from mosslive.talk.segmenter import Segmenter, TurnItem

_REMEMBERED_S = 60  # when packets came: longer than any silence that ends a turn
_BEHIND_S = 1.0  # more than this is heard at once, by whoever pushes it


@cache
def vad_threads() -> Executor:
    """Shared by all conversations. Few: half of the work is Python's, and that takes turns."""
    threads = max(1, min(4, (os.cpu_count() or 2) // 2))
    return ThreadPoolExecutor(threads, thread_name_prefix="mosslive-ear")


class Owner(Protocol):
    @property
    def in_turn(self) -> bool:
        """Whether a turn of the user is being heard."""
        ...

    @property
    def interrupting(self) -> bool:
        """Whether speech now would interrupt a reply."""
        ...

    def make_segmenter(self, rate_hz: int) -> Segmenter: ...
    def heard(self, heard: list[TurnItem]) -> None: ...

    def listening_failed(self, error: Exception) -> None:
        """Some sound is lost; another ear takes over."""
        ...


class VadWorker:
    def __init__(self, owner: Owner, threads: Executor | None, clock: Clock) -> None:
        """`threads`: None: listens at once, on the event loop."""
        self._owner, self._threads, self._clock = owner, threads, clock
        self.rate_hz = 0  # of the ear
        self._segmenter: Segmenter | None = None
        self._is_old = False  # the ear goes by settings that have changed
        self._before_s = 0.0  # sound that earlier ears have heard
        self._came: deque[tuple[int, float]] = deque()  # (samples in all, when they were here)
        self._waiting: list[Tensor] = []  # came, and nobody listens to it yet
        self._piece = torch.zeros(0)  # what a thread listens to ...
        self._job: Future[list[TurnItem]] | None = None  # ... for this

    def push(self, wave: Tensor, rate_hz: int) -> None:
        """wave [n] float32."""
        if self._is_old or rate_hz != self.rate_hz:
            self._change_segmenter(rate_hz)
        segmenter = self._segmenter
        assert segmenter is not None, "there is one for every rate that is not refused"
        total = (self._came[-1][0] if self._came else 0) + len(wave)
        self._came.append((total, self._clock.now()))
        while self._came[0][0] < total - _REMEMBERED_S * rate_hz:
            self._came.popleft()
        self._waiting.append(wave)
        too_far_behind = sum(map(len, self._waiting)) > _BEHIND_S * rate_hz
        if self._threads is None or too_far_behind or not segmenter.slow:
            self.catch_up()
        elif self._job is None:
            self._send(segmenter, self._threads)

    def catch_up(self) -> None:
        """Everything pushed is heard, and told, when this returns."""
        if (job := self._job) is not None:
            self._job = None
            if job.cancel():
                self._waiting.insert(0, self._piece)
            else:
                self._take(job.result)  # waits for the rest of one piece
        while self._segmenter and self._has_more:
            listen = partial(self._segmenter.push, self._next_piece(), self._owner.interrupting)
            self._take(listen)

    def commit(self) -> list[TurnItem]:
        """The turn in progress ends here; what was heard of it since."""
        self.catch_up()
        return self._segmenter.commit() if self._segmenter else []

    def clear(self) -> None:
        """All sound so far belongs to no turn."""
        self.catch_up()
        self.ignore()

    def ignore(self) -> None:
        """All that was told belongs to no turn."""
        if self._segmenter:
            self._segmenter.clear()

    def renew(self) -> None:
        """Settings have changed: between turns another ear takes over."""
        self.catch_up()
        self._is_old = True

    def close(self) -> None:
        self._job, self._segmenter = None, None
        self._waiting.clear()

    # Positions in signals are samples of what this ear has heard.

    def position_s(self, sample: int) -> float:
        """In all sound of the user."""
        return self._before_s + sample / self.rate_hz

    def arrival_of(self, sample: int) -> float:
        """When the packet with this sample was here."""
        moments = (moment for total, moment in self._came if total >= sample)
        return next(moments, self._clock.now())

    # One piece after the other.

    @property
    def _has_more(self) -> bool:
        return bool(self._waiting) or (self._segmenter is not None and self._segmenter.behind)

    def _next_piece(self) -> Tensor:
        piece = torch.cat(self._waiting) if self._waiting else torch.zeros(0)
        self._waiting.clear()
        return piece

    def _send(self, segmenter: Segmenter, threads: Executor) -> None:
        self._piece = self._next_piece()
        loop = asyncio.get_running_loop()
        job = self._job = threads.submit(segmenter.push, self._piece, self._owner.interrupting)

        def done(job: "Future[list[TurnItem]]") -> None:
            with suppress(RuntimeError):  # that loop is closed, so nobody listens any more
                loop.call_soon_threadsafe(self._finished, job, threads)

        job.add_done_callback(done)

    def _finished(self, job: "Future[list[TurnItem]]", threads: Executor) -> None:
        if job is not self._job:
            return  # somebody has caught up since
        self._job = None
        self._take(job.result)
        if self._segmenter and self._has_more:
            self._send(self._segmenter, threads)

    def _take(self, listened: Callable[[], list[TurnItem]]) -> None:
        try:
            heard = listened()
        except Exception as error:
            self._replace_segmenter(None, 0)  # the next packet brings another
            self._waiting.clear()
            self._owner.listening_failed(error)
        else:
            self._owner.heard(heard)

    # Which ear.

    def _change_segmenter(self, rate_hz: int) -> None:
        self.catch_up()
        if self._segmenter and self._owner.in_turn:  # a turn is heard to its end by one ear
            if rate_hz != self.rate_hz:
                raise refuse("sample_rate", rate_hz, f"{self.rate_hz} until the turn ends")
            return
        self._replace_segmenter(self._owner.make_segmenter(rate_hz), rate_hz)
        self._is_old = False

    def _replace_segmenter(self, segmenter: Segmenter | None, rate_hz: int) -> None:
        if self._came:
            self._before_s += self._came[-1][0] / self.rate_hz
        self._came.clear()
        self._segmenter, self.rate_hz = segmenter, rate_hz
