"""Parts of a recorded pass that do not depend on each other: side by side on the device.

While a graph is recorded, work put aside goes to a stream of its own, and the graph keeps that it
need not wait for the rest. Small kernels, which fill a fraction of the device each, then share it.
Outside a recording, and on a CPU, everything runs in the order it is written. Invariant: nothing
that is put aside is used before `join`, and its inputs live until then.
"""

from collections.abc import Callable
from typing import TypeVar

import torch

from mosslive.kernels.graph import is_recording

Result = TypeVar("Result")


class Branches:
    def __init__(self) -> None:
        self._open: list[torch.cuda.Stream] = []

    def aside(self, work: Callable[[], Result]) -> Result:
        """What `work` returns; complete after `join`."""
        if not is_recording():
            return work()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = work()
        self._open.append(stream)
        return result

    def join(self) -> None:
        """From here on, all that was put aside is there."""
        for stream in self._open:
            torch.cuda.current_stream().wait_stream(stream)
        self._open.clear()
