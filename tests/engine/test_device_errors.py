"""Which errors end a process, and that the engine and its health pass them on."""

import asyncio

import pytest
import torch

from mosslive.engine import EngineBroken
from mosslive.engine.device_errors import DeviceLost, is_device_lost, raise_if_lost
from mosslive.engine.errors import StepFailed, step_failed
from mosslive.engine.health import _SEEN_S, FINAL_S, STUCK_S, Health
from tests.engine.serving import Clock, Served, opened, read
from tests.engine.test_engine_faults import FILTERED, SPEECH, served, switching

__all__ = ["served", "switching"]
LOST = "CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    "message",
    [
        LOST,
        "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously",
        "Triton Error [CUDA]: an illegal memory access was encountered",
        "CUDA error: unspecified launch failure",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
        "CUDA error: uncorrectable ECC error encountered",
    ],
)
def test_errors_that_stay(message: str) -> None:
    """They are found under every class and behind every error they caused; only the first line is
    kept."""
    errors = [RuntimeError(message), torch.AcceleratorError(message)]
    for error in errors:
        caused = StepFailed("the step failed")
        caused.__cause__ = error
        assert is_device_lost(error)
        assert is_device_lost(caused)
        with pytest.raises(DeviceLost) as raised:
            raise_if_lost(error)
        assert str(raised.value) == f"{type(error).__name__}: {message.splitlines()[0]}"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        torch.AcceleratorError("CUDA error: invalid argument"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        MemoryError(),
        ValueError(f"a text of a user: {LOST}"),
    ],
)
def test_errors_of_one_step(error: Exception) -> None:
    """Memory that ran out and bad arguments are failures of a step."""
    assert not is_device_lost(error)
    raise_if_lost(error)
    assert isinstance(step_failed(error), StepFailed)


def test_the_engine_ends(served: Served) -> None:
    """Its thread ends with the first such error instead of trying each request again; all replies
    get the error, and the health reports it once."""
    reply = opened(served, SPEECH).reply(FILTERED)
    other = opened(served, SPEECH).reply(FILTERED)
    calls, reported = [0], list[str]()
    served.engine.health.on_device_lost = reported.append

    def fails(*_: object) -> None:
        calls[0] += 1
        raise torch.AcceleratorError(LOST)

    served.stepper.before = fails
    served.engine.loop.run()
    assert calls == [1]
    for one in (reply, other):
        with pytest.raises(EngineBroken, match="illegal memory access"):
            asyncio.run(read(one))
    assert len(reported) == 1
    assert LOST in reported[0]
    problem = served.engine.health.problem()
    assert problem is not None
    assert problem.final


def test_a_step_that_does_not_end() -> None:
    """It is a problem while it runs, and a final one later; a step that was paused with its process
    is none."""
    clock = Clock()
    health = Health("the model", clock)
    health.began("decode", "decode")
    clock.now += STUCK_S - 1
    assert health.problem() is None
    clock.now += 60  # the process was paused
    assert health.problem() is None, "it is seen for the first time"
    health.over("decode")
    clock.now += 60
    assert health.problem() is None
    health.began("decode", "decode")
    clock.now += STUCK_S
    assert health.problem() is None
    clock.now += _SEEN_S
    problem = health.problem()
    assert problem is not None
    assert (problem.final, problem.message.split(":")[1]) == (False, " decode runs for 10 s")
    clock.now += FINAL_S
    problem = health.problem()
    assert problem is not None
    assert problem.final
    health.over("decode")
    assert health.problem() is None
