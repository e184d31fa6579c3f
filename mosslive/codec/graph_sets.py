"""The numbers of streams for which the codec records graphs, and the graphs of one network.

There are two sets of graphs. The steady set runs on the caller's CUDA stream and takes any number
of streams. The urgent set is for first sounds: few streams, recorded with a high priority and run
on a CUDA stream of its own, so that it overtakes a steady step that is in flight. Knows no network.
Invariants: graphs of one set are replayed one after another and share memory; the two sets share no
memory that both write, except pages and slots of different streams. Used by the codec's thread.
"""

from collections.abc import Callable, Hashable
from functools import cache
from typing import Generic, TypeVar

import torch
from torch import Tensor

from mosslive.kernels.graph import Graphed, GraphRecorder

Result = TypeVar("Result")

# Between two sizes a step computes at most half as many streams again as it needs.
BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
URGENT_BUCKETS = (1, 2, 4, 8)
# Streams in one step, up to which its kernels overlap (see `kernels/wide_steps.py`).
MOST_OVERLAPPED = 8
URGENT_PRIORITY = -3  # the highest that PyTorch gives


def bucket_of(count: int, buckets: tuple[int, ...] = BUCKETS) -> int:
    """The smallest size that holds `count` streams."""
    return next(size for size in buckets if size >= count)


def buckets_for(most: int, buckets: tuple[int, ...] = BUCKETS) -> list[int]:
    """The sizes that occur with up to `most` streams."""
    return [size for size in buckets if size <= bucket_of(min(most, buckets[-1]), buckets)]


def buckets_of(urgent: bool) -> tuple[int, ...]:
    return URGENT_BUCKETS if urgent else BUCKETS


@cache
def urgent_stream(device: torch.device) -> torch.cuda.Stream:
    """The CUDA stream of all urgent steps of a device."""
    return torch.cuda.Stream(device, priority=URGENT_PRIORITY)  # type: ignore[no-untyped-call]


class GraphSet(Generic[Result]):
    """Graphs of one network by key, recorded when they are first needed."""

    def __init__(self, device: torch.device, urgent: bool) -> None:
        self.buckets = buckets_of(urgent)
        self._device, self._urgent = device, urgent
        self._recorder: GraphRecorder | None = None
        self._graphs: dict[Hashable, Graphed[Result]] = {}

    def __len__(self) -> int:
        return len(self._graphs)

    @property
    def most(self) -> int:
        """Streams in one graph."""
        return self.buckets[-1]

    def get(
        self, key: Hashable, function: Callable[..., Result], inputs: Callable[[], Tensor]
    ) -> Graphed[Result]:
        """The graph of this key. Records `function` if there is none, with `inputs` that change no
        stream: a recording runs the function."""
        if key not in self._graphs:
            if self._recorder is None and self._device.type == "cuda":
                priority = URGENT_PRIORITY if self._urgent else None
                # One run compiles every kernel; recording must not take long with so many sizes.
                self._recorder = GraphRecorder(self._device, priority=priority, warm_up_runs=1)
            self._graphs[key] = Graphed(function, inputs(), recorder=self._recorder)
        return self._graphs[key]
