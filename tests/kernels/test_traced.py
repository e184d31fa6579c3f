"""What is recorded gives what the plain function gives; parts of it run beside each other."""

import threading

import pytest
import torch
from torch import Tensor

from mosslive.kernels.traced import Traced, begin


@pytest.fixture(autouse=True)
def one_core_for_each_operation() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_other_values_and_lengths() -> None:
    """Guards: what is left to PyTorch is not fixed by the recording."""

    def means(x: Tensor) -> Tensor:
        return x.cumsum(0) / torch.arange(1, x.shape[0] + 1)

    recorded = Traced(means, torch.ones(3))
    for length in (1, 3, 8):
        x = torch.arange(length).float()
        assert torch.equal(recorded(x), means(x))


def test_arguments_are_written() -> None:
    """Guards: a page that nothing in the recording reads again is written all the same."""

    def store(x: Tensor, pages: Tensor, slot: Tensor) -> Tensor:
        pages.index_copy_(0, slot, x[None])
        return 2 * x

    recorded = Traced(store, torch.ones(2), torch.zeros(4, 2), torch.tensor([0]))
    pages = torch.zeros(4, 2)
    recorded(torch.tensor([5.0, 6.0]), pages, torch.tensor([2]))
    assert pages.tolist() == [[0, 0], [0, 0], [5, 6], [0, 0]]


def test_parts_side_by_side() -> None:
    """Guards: a part that was begun, one inside another and one that waits for another too, gives
    the same as in order."""

    def chain(x: Tensor) -> Tensor:
        inner = begin(torch.sin, x)
        return inner() + 1

    def work(x: Tensor) -> Tensor:
        first = begin(chain, x)
        second = begin(lambda y: first() * y, x)
        return x.cos() + second()

    recorded, x = Traced(work, torch.ones(5)), torch.linspace(0, 1, 5)
    torch.testing.assert_close(recorded(x), x.cos() + (x.sin() + 1) * x)
    assert torch.equal(work(x), recorded(x))


def test_python_is_free_meanwhile() -> None:
    """Guards: the other thread that computes need not wait for the lock of this one."""

    def long(x: Tensor) -> Tensor:
        for _ in range(40):
            x = x @ x / 1000
        return x

    x = torch.ones(300, 300)
    recorded, counted, over = Traced(long, x), 0, threading.Event()

    def compute() -> None:
        recorded(x)
        over.set()

    thread = threading.Thread(target=compute)
    thread.start()
    while not over.is_set():
        counted += 1
    thread.join()
    assert counted > 1000
