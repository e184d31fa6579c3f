"""Times single calls and summarises them as median and percentiles. Does not know what is run.

On a GPU, reads device events with the device idle before each call. Host work between the two
events counts, because a live stream waits for it too.
"""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_WARM_UP = 1  # calls, after the call that was verified
_MOST_SECONDS = 5.0  # per row; stops after that once _FEWEST calls are timed
_FEWEST = 3


@dataclass(frozen=True)
class Times:
    median_ms: float
    p10_ms: float
    p90_ms: float
    count: int


def times_ms(
    work: Callable[[], object],
    device: str,
    repeats: int,
    prepare: Callable[[], None] | None = None,
) -> list[float]:
    """Returns at most `repeats` times, fewer if they take long. `prepare` runs untimed before each
    call."""
    times: list[float] = []
    begun = time.perf_counter()
    for index in range(_WARM_UP + repeats):
        if prepare is not None:
            prepare()
        elapsed = _device_ms(work) if device == "cuda" else _host_ms(work)
        if index >= _WARM_UP:
            times.append(elapsed)
        if len(times) >= _FEWEST and time.perf_counter() - begun > _MOST_SECONDS:
            break
    return times


def summary(times: list[float]) -> Times:
    if len(times) == 1:
        return Times(times[0], times[0], times[0], 1)
    deciles = statistics.quantiles(times, n=10, method="inclusive")
    return Times(statistics.median(times), deciles[0], deciles[-1], len(times))


def _device_ms(work: Callable[[], object]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def _host_ms(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - begin)


def free_memory(device: str) -> None:
    """Frees the memory of the last row for the next one."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
