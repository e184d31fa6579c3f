"""A training step as one launch: what a step does to the device is recorded once for every shape.

A step of a model this small is some thousand kernels of a few microseconds each; launched one by
one, the device waits for the host more than half of the time. Knows batches, and nothing of what a
step does. Invariant: whatever goes wrong here costs speed, never the run: then steps run as they
are written, and a printed line says why.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recipes.bundled.lm_batch import Batch

# A shape is run as written first: what is compiled, chosen or set aside at first sight must not be
# recorded. Shapes that stay rare are not worth the second that recording costs.
_BEFORE = 3

Step = Callable[[Batch], Tensor]


class _Recorded:
    def __init__(self, step: Step, batch: Batch, pool: Any) -> None:
        self._batch = batch  # stays where it is: the graph reads from there
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            self._found = step(batch)

    @property
    def pool(self) -> Any:
        return self._graph.pool()

    def __call__(self, batch: Batch) -> Tensor:
        for mine, theirs in zip(tensors(self._batch), tensors(batch), strict=True):
            if mine is not theirs:
                mine.copy_(theirs)
        self._graph.replay()
        return self._found.clone()  # the next replay writes there


class CapturedSteps:
    """Of a step that reads nothing back from the device and takes nothing from the host but its
    batch. One pool of memory serves all shapes: one step is over before the next begins."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._recorded: dict[tuple[torch.Size, ...], _Recorded] = {}
        self._seen: Counter[tuple[torch.Size, ...]] = Counter()
        self._pool: Any = None  # torch's own kind of handle
        self._given_up = False

    @property
    def shapes(self) -> int:
        """How many are recorded."""
        return len(self._recorded)

    def __call__(self, batch: Batch) -> Tensor:
        shape = tuple(each.shape for each in tensors(batch))
        known = self._recorded.get(shape) or self._record(shape, batch)
        return known(batch) if known else self._step(batch)

    def _record(self, shape: tuple[torch.Size, ...], batch: Batch) -> _Recorded | None:
        self._seen[shape] += 1
        if self._given_up or self._seen[shape] <= _BEFORE:
            return None
        try:
            found = self._recorded[shape] = _Recorded(self._step, batch, self._pool)
        except Exception as error:
            self._given_up = True
            what = f"{type(error).__name__}: {str(error).strip()[:200]}"
            print(json.dumps({"captured steps": f"given up: {what}"}), flush=True)
            return None
        self._pool = found.pool
        return found


def tensors(batch: Batch) -> tuple[Tensor, ...]:
    return batch.text, batch.audio, *batch.write, *batch.speak, batch.meant
