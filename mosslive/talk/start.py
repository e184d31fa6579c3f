"""Starts the parts of a conversation side by side: the codec warms up while a model is loaded.

Knows neither of them: both are functions. At most one CUDA graph may be recorded at a time, so the
loader waits for the warm-up before it records: it calls `wait`. Runs on the caller's thread and on
one more, which has ended when `load_beside` returns or raises.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mosslive.kernels.arithmetic import arithmetic

Loaded = TypeVar("Loaded")
_log = logging.getLogger("mosslive.server")


class StartClock:
    """Logs how long each part of the start took; one per thread."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def done(self, part: str) -> None:
        """The part that began with the one before, or with this object, is done."""
        now = time.monotonic()
        _log.info("started part", extra={"part": part, "seconds": round(now - self._since, 2)})
        self._since = now


def load_beside(warm: Callable[[], None], load: Callable[[Callable[[], None]], Loaded]) -> Loaded:
    """Runs `warm` on another thread and returns `load(wait)`; `wait` returns when `warm` is done
    and raises its error."""
    # The switches belong to the process. Both sides set and restore them; with the same settings
    # around both, no order of the two restores less exact ones during the other's work.
    with arithmetic("fp32"), ThreadPoolExecutor(1, "mosslive-warm") as thread:
        warming = thread.submit(warm)
        loaded = load(warming.result)
        warming.result()
    return loaded
