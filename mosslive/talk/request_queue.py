"""Requests from event loops to one thread, and their results back.

Requests are put on any thread and taken, in order, on the thread that answers them. Every waiting
caller gets a result: an error of its request, and the end of the thread, are raised where the
request is awaited. Knows nothing of codecs.
"""

import asyncio
import threading
from typing import Any, NamedTuple

from mosslive.engine.health import Health
from mosslive.errors import MossliveError
from mosslive.talk.codec_requests import Done, Request, ThreadEnded

Result = asyncio.Future[Any]

_CLOSING_S = 0.01  # between two looks at whether a thread that closes is done


class Asked(NamedTuple):
    request: Request
    result: Result | None  # None: no caller waits


class RequestQueue:
    def __init__(self, health: Health) -> None:
        """`health`: of the thread that answers; its name is the thread's name in errors."""
        self._name, self._health = health.name, health
        self._waiting: list[Asked] = []
        self._changed = threading.Condition()
        self._notified = False  # something changed since the last wait
        self.closing = False  # no further request is accepted
        self._ended = ""  # the error by which the thread ended

    # On any thread.

    def put(self, request: Request, result: Result | None) -> None:
        with self._changed:
            if self._ended and result is not None:
                raise ThreadEnded(self._ended)
            if self.closing and result is not None:
                raise MossliveError(f"{self._name} is closed")
            if self._ended:
                return  # no caller waits for it
            self._waiting.append(Asked(request, result))
            self._notify()

    def notify(self) -> None:
        """Ends the current wait, or the next one."""
        with self._changed:
            self._notify()

    def close(self) -> None:
        """Accepts no further request; the waiting ones are still answered."""
        with self._changed:
            self.closing = True
            self._notify()

    def _notify(self) -> None:
        self._notified = True
        self._changed.notify()

    # On the thread that answers.

    def take(self) -> list[Asked]:
        """All requests so far, in order."""
        with self._changed:
            taken, self._waiting = self._waiting, []
        return taken

    def wait(self, most_s: float | None) -> None:
        """Waits for a request, for `notify` or `close`, at most this long (None: no limit); returns
        at once if there was one since the last wait. After `close` there is always a limit: an
        earlier wait may have taken its notice."""
        with self._changed:
            if self.closing and most_s is None:
                most_s = _CLOSING_S
            if not self._notified:
                self._changed.wait(most_s)
            self._notified = False

    def give_up(self, error: BaseException) -> MossliveError:
        """The thread ends: fails all waiting requests and all later ones. Returns the error that
        they get."""
        with self._changed:
            self.closing = True
            self._ended = f"{self._name} has ended: {type(error).__name__}: {error}"
            waiting, self._waiting = self._waiting, []
        self._health.ended(error)
        ended = ThreadEnded(self._ended)
        for _, result in waiting:
            if result is not None:
                settle(result, ended)
        return ended


def settle(result: Result, outcome: Done[Any] | Exception) -> None:
    """Sets a result from another thread than that of its event loop."""

    def now() -> None:
        if result.done():
            return
        if isinstance(outcome, Exception):
            result.set_exception(outcome)
        else:
            result.set_result(outcome)

    try:
        result.get_loop().call_soon_threadsafe(now)
    except RuntimeError:  # the loop is closed, so no caller waits
        return
