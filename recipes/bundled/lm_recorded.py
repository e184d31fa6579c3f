"""Records a training step once per batch shape and replays it as one launch.

A step of a model this small is about a thousand kernels of a few microseconds each. Launched one by
one, the device waits for the host more than half of the time. (The package's `Graphed` runs a step
several times before it records it, which a training step must not do.) Knows batches, not what a
step does. Invariant: a failure here costs speed and never the run: steps then run unrecorded, and a
printed line gives the reason; if it ends the process, the second try records nothing.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recipes.bundled.lm_batch import Batch

# Runs of a shape before it is recorded. Compiling, choosing algorithms and allocating on first use
# must not be recorded, and rare shapes are not worth the time that recording takes.
_BEFORE = 3

Step = Callable[[Batch], Tensor]
Shape = tuple[torch.Size, ...]


class _Recording:
    def __init__(self, step: Step, batch: Batch, pool: Any) -> None:
        own = batch.clone()  # the graph reads this memory; later batches are copied into it
        self._batch = own.tensors()
        self._graph = torch.cuda.CUDAGraph()
        # Other threads keep using the device and must not break the recording.
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._found = step(own)

    @property
    def pool(self) -> Any:
        return self._graph.pool()

    def __call__(self, batch: Batch) -> Tensor:
        for mine, theirs in zip(self._batch, batch.tensors(), strict=True):
            mine.copy_(theirs)
        self._graph.replay()
        return self._found.clone()  # the next replay overwrites it


class RecordedSteps:
    """Records a step that reads nothing back from the device and takes only its batch from the
    host. All shapes share one memory pool, because one step ends before the next begins."""

    def __init__(self, step: Step, ready: Callable[[], bool] = lambda: True) -> None:
        """`ready`: whether the step is final. Nothing is recorded before."""
        self._step, self._ready = step, ready
        self._recorded: dict[Shape, _Recording] = {}
        self._seen: Counter[Shape] = Counter()
        self._pool: Any = None  # torch's own kind of handle
        self._given_up = False

    @property
    def shapes(self) -> int:
        """The number of recorded shapes."""
        return len(self._recorded)

    def forget(self) -> None:
        """Drops all recordings, because the step has changed."""
        self._recorded.clear()
        self._seen.clear()

    def __call__(self, batch: Batch) -> Tensor:
        shape = tuple(each.shape for each in batch.tensors())
        known = self._recorded.get(shape) or self._record(shape, batch)
        return known(batch) if known else self._step(batch)

    def _record(self, shape: Shape, batch: Batch) -> _Recording | None:
        if self._given_up or not self._ready():
            return None
        self._seen[shape] += 1
        if self._seen[shape] <= _BEFORE:
            return None
        stream = torch.cuda.current_stream() if torch.cuda.is_available() else None
        try:
            found = self._recorded[shape] = _Recording(self._step, batch, self._pool)
        except Exception as error:
            if stream is not None:
                torch.cuda.set_stream(stream)  # a failed recording leaves its own stream current
            self._given_up = True
            self.forget()
            what = f"{type(error).__name__}: {str(error).strip()[:200]}"
            print(json.dumps({"recorded steps": f"given up: {what}"}), flush=True)
            return None
        self._pool = found.pool
        return found
