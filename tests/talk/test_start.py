"""Loading beside the warm-up: order, errors, and the switches of the process."""

import logging
import threading

import pytest
import torch

from mosslive.kernels.arithmetic import arithmetic
from mosslive.talk.start import StartClock, load_beside


def test_the_loader_waits_where_it_asks_to() -> None:
    """Both sides run at once; after `wait` the warm-up is over."""
    loading, done = threading.Event(), []

    def warm() -> None:
        assert loading.wait(10)  # only a loader that runs meanwhile sets it
        done.append("warm")

    def load(wait: object) -> str:
        loading.set()
        wait()  # type: ignore[operator]
        done.append("recorded")
        return "loaded"

    assert load_beside(warm, load) == "loaded"
    assert done == ["warm", "recorded"]


def test_an_error_of_either_side_is_raised() -> None:
    """The warm-up's error reaches the caller, also if the loader does not wait; the thread ends."""

    def fail() -> None:
        raise ValueError("warm")

    with pytest.raises(ValueError, match="warm"):
        load_beside(fail, lambda wait: wait())
    with pytest.raises(ValueError, match="warm"):
        load_beside(fail, lambda wait: None)
    with pytest.raises(ZeroDivisionError):
        load_beside(lambda: None, lambda wait: 1 // 0)
    assert not [one for one in threading.enumerate() if one.name.startswith("mosslive-warm")]


def test_neither_side_restores_less_exact_switches_for_the_other() -> None:
    """Whoever leaves `arithmetic` first, the other still computes in float32; afterwards the
    process has its own switches again."""
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    entered, left = threading.Event(), threading.Event()
    found = []

    def warm() -> None:
        assert entered.wait(10)
        with arithmetic("fp32"):
            assert left.wait(10)
            found.append((torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()))

    def load(wait: object) -> None:
        with arithmetic("fp32"):
            entered.set()
        left.set()

    load_beside(warm, load)
    assert found == [(False, "highest")]
    assert before == (torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision())


def test_parts_are_logged_with_their_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """Each part gets a record with its name and the time since the part before it."""
    with caplog.at_level(logging.INFO, "mosslive.server"):
        clock = StartClock()
        clock.done("one")
        clock.done("two")
    fields = [(vars(record)["part"], vars(record)["seconds"] >= 0) for record in caplog.records]
    assert fields == [("one", True), ("two", True)]
