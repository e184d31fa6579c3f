"""A trace returns what the function returns; forked tasks of it run in parallel."""

import gc
import itertools
import threading
import time
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from mosslive.kernels.trace import Traced, fork


@pytest.fixture(autouse=True)
def one_core_for_each_operation() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_other_values_and_lengths() -> None:
    """Sizes that PyTorch computes with are not fixed by the trace."""

    def means(x: Tensor) -> Tensor:
        return x.cumsum(0) / torch.arange(1, x.shape[0] + 1)

    traced = Traced(means, torch.ones(3))
    for length in (1, 3, 8):
        x = torch.arange(length).float()
        assert torch.equal(traced(x), means(x))


def test_arguments_are_written() -> None:
    """A trace writes a page even if nothing in it reads the page again."""

    def store(x: Tensor, pages: Tensor, slot: Tensor) -> Tensor:
        pages.index_copy_(0, slot, x[None])
        return 2 * x

    traced = Traced(store, torch.ones(2), torch.zeros(4, 2), torch.tensor([0]))
    pages = torch.zeros(4, 2)
    traced(torch.tensor([5.0, 6.0]), pages, torch.tensor([2]))
    assert pages.tolist() == [[0, 0], [0, 0], [5, 6], [0, 0]]


def test_forked_tasks() -> None:
    """A forked task gives the same as in order, also nested or waiting for another."""

    def chain(x: Tensor) -> Tensor:
        inner = fork(torch.sin, x)
        return inner() + 1

    def work(x: Tensor) -> Tensor:
        first = fork(chain, x)
        second = fork(lambda y: first() * y, x)
        return x.cos() + second()

    traced, x = Traced(work, torch.ones(5)), torch.linspace(0, 1, 5)
    torch.testing.assert_close(traced(x), x.cos() + (x.sin() + 1) * x)
    assert torch.equal(work(x), traced(x))


@pytest.mark.alone
def test_python_is_free_meanwhile() -> None:
    """A running trace releases Python's lock, so that another thread can compute."""

    def long(x: Tensor) -> Tensor:
        for _ in range(40):
            x = x @ x / 1000
        return x

    x = torch.ones(300, 300)
    traced, took = Traced(long, x), [0.0]

    def compute() -> None:
        began = time.perf_counter()
        traced(x)
        took[0] = time.perf_counter() - began

    thread = threading.Thread(target=compute)
    thread.start()
    turns = [time.perf_counter()]
    while thread.is_alive():
        turns.append(time.perf_counter())
    thread.join()
    # With the lock held there would be one wait as long as the whole call.
    assert max(b - a for a, b in itertools.pairwise(turns)) < took[0] / 2


def test_a_dropped_trace_frees_everything() -> None:
    """A dropped trace frees weights and pages at once, without the garbage collector."""

    class Owner:
        def __init__(self) -> None:
            self.weight = torch.ones(3, 3)
            self.traced = Traced(self.compute, torch.ones(2, 3))

        def compute(self, x: Tensor) -> Tensor:
            return fork(lambda y: y @ self.weight, x)()

    owner = Owner()
    owner.traced(torch.ones(2, 3))
    held: Any = StorageWeakRef(owner.weight.untyped_storage())  # type: ignore[no-untyped-call]
    alive = weakref.ref(owner)
    gc.disable()
    try:
        del owner
        assert alive() is None
        # The thread that computed a part has given its result, but may not have been on a core
        # since then to let go of what it computed with: milliseconds where every core is taken.
        until = time.monotonic() + 10
        while not held.expired() and time.monotonic() < until:
            time.sleep(0.001)
        assert held.expired()
    finally:
        gc.enable()
