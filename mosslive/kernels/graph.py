"""A function of fixed shapes as a CUDA graph: recorded once, then replayed by one launch.

Knows nothing of what it records. Invariant: every call gives what the plain function would give,
if the function reads only its arguments and tensors that stay where they are, never asks the device
for a value, and may run more often than it is called (warm-up). On a CPU it is the plain function.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")

_WARM_UP = 3  # library handles, algorithm choices and caches must exist before recording


def is_recording() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


class Graphed(Generic[Result]):
    def __init__(self, function: Callable[..., Result], *inputs: Tensor) -> None:
        """Records at once; `inputs` are the first arguments and fix all shapes. What a call returns
        is overwritten by the next one."""
        self._function = function
        self._inputs = [tensor.clone() for tensor in inputs]
        self._graph: torch.cuda.CUDAGraph | None = None
        if not torch.cuda.is_available() or not self._on_device():
            return
        current = torch.cuda.current_stream()
        # What is recorded keeps the priority of the stream it was recorded on, wherever it runs.
        side = torch.cuda.Stream(priority=current.priority)  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                function(*self._inputs)
        current.wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads go on using the device meanwhile, and must not spoil the recording.
        with torch.cuda.graph(self._graph, stream=side, capture_error_mode="thread_local"):
            self._result = function(*self._inputs)

    def __call__(self, *inputs: Tensor) -> Result:
        if self._graph is None:
            return self._function(*inputs)
        for kept, given in zip(self._inputs, inputs, strict=True):
            if kept.shape != given.shape or kept.dtype != given.dtype:
                raise ValueError(
                    f"a graph of {list(kept.shape)} {kept.dtype}, called with "
                    f"{list(given.shape)} {given.dtype}"
                )
            kept.copy_(given)
        self._graph.replay()
        return self._result

    def _on_device(self) -> bool:
        places = {tensor.device.type for tensor in self._inputs}
        if len(places) != 1:
            raise ValueError(f"inputs on {sorted(places)}; one device is needed, and an input")
        return places == {"cuda"}
