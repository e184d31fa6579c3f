"""A training step as one launch: what a step does to the device is recorded once for every shape.

A step of a model this small is about a thousand kernels of a few microseconds each; launched one by
one, the device waits for the host more than half of the time. (The package's `Graphed` runs what it
records some times before, which a step that learns must not.) Knows batches, and nothing of what a
step does. Invariant: whatever goes wrong here costs speed, never the run: then steps run as they
are written, and a printed line says why; should it end the process, its second try records nothing.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recipes.bundled.lm_batch import Batch

# A shape is run as written first: what is compiled, chosen or set aside at first sight must not be
# recorded. Shapes that stay rare are not worth the time that recording takes.
_BEFORE = 3

Step = Callable[[Batch], Tensor]
Shape = tuple[torch.Size, ...]


class _Recording:
    def __init__(self, step: Step, batch: Batch, pool: Any) -> None:
        own = batch.clone()  # the graph reads from there, and later batches are copied there
        self._batch = own.tensors()
        self._graph = torch.cuda.CUDAGraph()
        # Other threads go on using the device meanwhile, and must not spoil the recording.
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._found = step(own)

    @property
    def pool(self) -> Any:
        return self._graph.pool()

    def __call__(self, batch: Batch) -> Tensor:
        for mine, theirs in zip(self._batch, batch.tensors(), strict=True):
            mine.copy_(theirs)
        self._graph.replay()
        return self._found.clone()  # the next replay writes there


class RecordedSteps:
    """Of a step that reads nothing back from the device and takes nothing from the host but its
    batch. One pool of memory serves all shapes: one step is over before the next begins."""

    def __init__(self, step: Step, ready: Callable[[], bool] = lambda: True) -> None:
        """`ready`: whether a step is what it will stay. Until then nothing is recorded."""
        self._step, self._ready = step, ready
        self._recorded: dict[Shape, _Recording] = {}
        self._seen: Counter[Shape] = Counter()
        self._pool: Any = None  # torch's own kind of handle
        self._given_up = False

    @property
    def shapes(self) -> int:
        """How many are recorded."""
        return len(self._recorded)

    def forget(self) -> None:
        """The step has become another one."""
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
                torch.cuda.set_stream(stream)  # one that fails leaves its own current
            self._given_up = True
            self.forget()
            what = f"{type(error).__name__}: {str(error).strip()[:200]}"
            print(json.dumps({"recorded steps": f"given up: {what}"}), flush=True)
            return None
        self._pool = found.pool
        return found
