"""Whether kernels may start while the previous one runs (see `gpu/overlap.py`): not in wide steps.

A kernel that starts early holds its place on the device while it waits. In a step of one stream
that costs nobody anything and saves microseconds each time. The kernels of a wide step fill the
device: those that wait keep out the kernels of other CUDA streams, whatever their priority. Per
thread, because each thread launches steps of its own. Needs no Triton: any module may use it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_state = threading.local()


def may_overlap() -> bool:
    return not getattr(_state, "wide", False)


@contextmanager
def wide_step(wide: bool) -> Iterator[None]:
    """Kernels launched or recorded inside by this thread do not overlap, if `wide`."""
    before = not may_overlap()
    _state.wide = wide or before
    try:
        yield
    finally:
        _state.wide = before
