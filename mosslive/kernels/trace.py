"""A function of tensors as a TorchScript trace: PyTorch runs it without Python, on a CPU.

The CPU's counterpart of a CUDA graph. A step of a small model is hundreds of operations of a few
microseconds each. Between two of them Python takes as long again and holds its lock, for which the
other computing thread waits. TorchScript's interpreter does neither.

Knows nothing of what it traces. Invariants: a call returns what the function would return, if the
function writes only to its arguments, reads besides them only tensors that do not change, and
copies no value to Python. Python numbers computed from a size become constants of the trace. A
trace that is dropped frees everything: it holds tensors, and never the function.
"""

import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

_JIT: Any = torch.jit  # it has no types
_C: Any = torch._C
# The warning says that Python numbers become constants of a trace: see the invariants.
warnings.filterwarnings("ignore", category=_JIT.TracerWarning, module=r"(mosslive|torch)\b")

Result = TypeVar("Result", bound=Tensor | tuple[Tensor, ...])


class Traced(Generic[Result]):
    def __init__(self, function: Callable[..., Result], *inputs: Tensor) -> None:
        """Traces at once, which runs the function with these `inputs`."""

        # What `torch.jit.trace` does, without two of its effects: it keeps every trace with all its
        # weights until the process ends, and it refers back to the function.
        with torch.no_grad():
            graph, _ = _C._create_graph_by_tracing(
                lambda *given: function(*given), inputs, _no_name, True, False
            )
        self._run = _C._create_function_from_graph("traced", graph)

    def __call__(self, *inputs: Tensor) -> Result:
        # Without optimisation passes: they take longer in the next calls than they save.
        with torch.no_grad(), _JIT.optimized_execution(False):
            result: Result = self._run(*inputs)
        return result


def _no_name(_: Tensor) -> str:
    """The name of a variable in a printed trace."""
    return ""


def is_tracing() -> bool:
    """Whether this thread is tracing now."""
    return bool(_JIT.is_tracing())


def fork(function: Callable[..., Tensor], *given: Tensor) -> Callable[[], Tensor]:
    """Within a trace, starts `function` as a task that runs in parallel with what follows, on
    another core if one is free. Returns a function that waits for the result. Computes at once
    outside a trace, and where every operation has several cores already."""
    if not is_tracing() or torch.get_num_threads() > 1:
        result = function(*given)
        return lambda: result
    future = _C.fork(lambda *own: function(*own), *given)

    def wait() -> Tensor:
        waited: Tensor = _C.wait(future)
        return waited

    return wait
