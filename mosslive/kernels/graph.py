"""CUDA graphs: a computation with fixed shapes, captured once and replayed by one launch.

Knows nothing of what it captures. The captured function must read and write only tensors that stay
at their addresses, must not copy a value to the host, and must allow extra runs (warm-up).
"""

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")

# Library handles, algorithm choices, compiled kernels and caches must exist before the capture.
_WARM_UP_RUNS = 2


class GraphRecorder:
    """Captures graphs that share one memory pool. Capture the largest first: the others then fit
    into its memory. Graphs of one recorder must be replayed one after another, and the result of
    one may be overwritten by the next."""

    def __init__(
        self,
        device: torch.device | None = None,
        progress: Callable[[int], None] = lambda done: None,
        *,
        priority: int | None = None,
        warm_up_runs: int = _WARM_UP_RUNS,
    ) -> None:
        """`device`: default: the current one. `progress` is called with the number of graphs that
        are done. `priority`: of the graphs' kernels; lower numbers go first; default: that of the
        current stream."""
        self._device, self._progress, self._done = device, progress, 0
        self._warm_up_runs = warm_up_runs
        # A graph keeps the priority of the stream it was captured on, wherever it is replayed.
        if priority is None:
            priority = torch.cuda.current_stream(device).priority
        self._stream = torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
        """Runs `work` for warm-up, then captures it. The result is written anew by each replay."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(self._warm_up_runs):
                work()
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads keep using the device during the capture and must not invalidate it.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            result = work()
        self._done += 1
        self._progress(self._done)
        return graph, result


class Graphed(Generic[Result]):
    """A function of tensors as one CUDA graph; on a CPU the function itself.

    Invariant: a call returns what the function would return.
    """

    def __init__(
        self,
        function: Callable[..., Result],
        *inputs: Tensor,
        recorder: GraphRecorder | None = None,
    ) -> None:
        """Captures at once; `inputs` are the first arguments and fix all shapes. The next call
        overwrites what a call returned. `recorder`: its memory pool is used, and the next call of
        any graph in it overwrites the result; default: the graph has memory of its own."""
        self._function = function
        self._inputs = [tensor.clone() for tensor in inputs]
        self._graph: torch.cuda.CUDAGraph | None = None
        if torch.cuda.is_available() and self._on_device():
            recorder = recorder or GraphRecorder()
            self._graph, self._result = recorder.record(partial(function, *self._inputs))

    def __call__(self, *inputs: Tensor) -> Result:
        """Inputs in pinned host memory are copied without waiting for the device."""
        if self._graph is None:
            return self._function(*inputs)
        for kept, given in zip(self._inputs, inputs, strict=True):
            if kept.shape != given.shape or kept.dtype != given.dtype:
                raise ValueError(
                    f"a CUDA graph for {list(kept.shape)} {kept.dtype} was called with "
                    f"{list(given.shape)} {given.dtype}"
                )
            kept.copy_(given, non_blocking=True)
        self._graph.replay()
        return self._result

    def _on_device(self) -> bool:
        places = {tensor.device.type for tensor in self._inputs}
        if len(places) != 1:
            raise ValueError(
                f"inputs on {sorted(places)}; allowed: at least one input, all on one device type"
            )
        return places == {"cuda"}
