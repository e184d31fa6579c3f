"""Which errors mean that the GPU is lost for this process.

After an illegal access or a failed assertion of a kernel, CUDA's context is broken: every later
call fails, and what the memory contains is unknown. Only a new process recovers. Memory that has
run out and calls with bad arguments are ordinary failures. Pure functions, without PyTorch: the
errors come from PyTorch, Triton and CUDA's libraries, under several classes.
"""

from mosslive.errors import MossliveError

# As CUDA's runtime and driver describe the errors that stay, in lower case.
_LOST = (
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "device-side assert triggered",
    "unspecified launch failure",
    "misaligned address",
    "invalid program counter",
    "operation not supported on global/shared address space",
    "hardware stack error",
    "the launch timed out and was terminated",
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
    "an exception occurred on the device while executing a kernel",
    "context is destroyed",
    "gpu is lost",
    "cublas_status_execution_failed",
    "cublas_status_mapping_error",
)


class DeviceLost(MossliveError):
    """The device failed in a way that only a new process recovers from."""


def is_device_lost(error: BaseException | None) -> bool:
    """Whether this error, or one that caused it, is the loss of the device."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, DeviceLost):
            return True
        if isinstance(error, RuntimeError) and any(one in str(error).lower() for one in _LOST):
            return True
        error = error.__cause__ or error.__context__
    return False


def raise_if_lost(error: BaseException) -> None:
    """Call it where errors are caught, before they are treated as the failure of one step."""
    if is_device_lost(error):
        first_line = (str(error).splitlines() or [""])[0]  # the rest is advice for debugging
        raise DeviceLost(f"{type(error).__name__}: {first_line}") from error
