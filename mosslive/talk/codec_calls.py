"""Work that other threads want done on the codec's thread, by deadline, one call at a time.

Runs on the codec's thread. Does not know what the calls do. Invariant: every call gets a result,
unless its caller no longer waits for one.
"""

import heapq
import math
from collections.abc import Callable
from itertools import count

from mosslive.engine.device_errors import is_device_lost
from mosslive.engine.health import Health
from mosslive.errors import MossliveError, is_failure
from mosslive.talk.codec_requests import NOW, Call, Done
from mosslive.talk.request_queue import Result, settle

_MOST_CALL_S = 120.0  # a slow CPU encodes a recording of minutes in one call


class Calls:
    def __init__(self, health: Health, clock: Callable[[], float]) -> None:
        self._health, self._clock = health, clock
        self._numbers = count()  # calls of one deadline run in the order in which they came
        self._heap: list[tuple[float, int, Call, Result | None]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def due(self) -> float:
        """When the next call is due; inf: there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def add(self, call: Call, result: Result | None) -> None:
        heapq.heappush(self._heap, (call.due, next(self._numbers), call, result))

    def run_next(self) -> None:
        """Raises only what ends the thread; the call then still waits, for `give_up`."""
        _, _, call, result = heapq.heappop(self._heap)
        if result is not None and result.cancelled():
            return
        began = self._clock()
        self._health.began("call", call.kind or "a call", _MOST_CALL_S)
        try:
            value = call.work()
        except BaseException as error:  # raised where the call is awaited
            if not isinstance(error, Exception) or is_device_lost(error):
                heapq.heappush(self._heap, (NOW, next(self._numbers), call, result))
                raise
            if call.kind and is_failure(error):
                self._health.failed(call.kind, error)
            if result is not None:
                settle(result, error)
            return
        finally:
            self._health.over("call")
        if call.kind:
            self._health.succeeded(call.kind)
        if result is not None:
            settle(result, Done(value, self._clock() - began))

    def give_up(self, error: MossliveError) -> None:
        """The thread ends."""
        for _, _, _, result in self._heap:
            if result is not None:
                settle(result, error)
        self._heap.clear()
