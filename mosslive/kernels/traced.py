"""A function of tensors as PyTorch runs it without Python: recorded once, on a CPU.

What a CUDA graph is on a GPU. Steps of a small model are hundreds of operations of a few
microseconds, and between two of them Python takes as long again and holds its lock, for which the
other thread that computes waits. PyTorch's own interpreter does neither. Knows nothing of what it
records. Invariants: every call gives what the plain function would give, if the function writes
only to its arguments, reads besides them only tensors that stay as they are, and asks for no value;
what it makes of a size is fixed, unless it leaves that to PyTorch. A recording that is dropped
leaves nothing: it holds tensors, and never the function.
"""

import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

_JIT: Any = torch.jit  # it has no types
_C: Any = torch._C
# That numbers become constants of a recording: see the invariants.
warnings.filterwarnings("ignore", category=_JIT.TracerWarning, module=r"(mosslive|torch)\b")

Result = TypeVar("Result", bound=Tensor | tuple[Tensor, ...])


class Traced(Generic[Result]):
    def __init__(self, function: Callable[..., Result], *inputs: Tensor) -> None:
        """Records at once, which runs the function with these `inputs`."""

        # As `torch.jit.trace` does it. But that keeps every recording of a function, with all the
        # weights in it, for the life of the process, and refers back to the function.
        with torch.no_grad():
            graph, _ = _C._create_graph_by_tracing(
                lambda *given: function(*given), inputs, _no_name, True, False
            )
        self._run = _C._create_function_from_graph("recorded", graph)

    def __call__(self, *inputs: Tensor) -> Result:
        # As recorded: to look for a better form takes the next calls longer than it gains.
        with torch.no_grad(), _JIT.optimized_execution(False):
            result: Result = self._run(*inputs)
        return result


def _no_name(_: Tensor) -> str:
    """Of a tensor, where a recording is read by people."""
    return ""


def is_recording() -> bool:
    """Whether what is computed now, by this thread, becomes part of a recording."""
    return bool(_JIT.is_tracing())


def begin(function: Callable[..., Tensor], *given: Tensor) -> Callable[[], Tensor]:
    """Begins a part of a recording for which the next parts need not wait: it runs beside them, on
    another core where one is free. What is returned waits for it. Outside a recording it is
    computed now, and also where every operation has several cores already."""
    if not is_recording() or torch.get_num_threads() > 1:
        result = function(*given)
        return lambda: result
    future = _C.fork(lambda *own: function(*own), *given)

    def wait() -> Tensor:
        waited: Tensor = _C.wait(future)
        return waited

    return wait
