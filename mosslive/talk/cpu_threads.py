"""The share of PyTorch's CPU threads of the two threads that compute: the engine's and the codec's.

A setting of the process, set before either thread starts. Knows neither thread.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_cpu_threads(device: str) -> None:
    """Gives each half of PyTorch's threads; call before either starts. With all threads each waits
    for the cores of the other: on two busy cores a chunk of sound took seven times as long."""
    if device == "cpu":
        torch.set_num_threads(max(1, torch.get_num_threads() // 2))


@contextmanager
def shared_cpu_threads(device: str) -> Iterator[None]:
    """`share_cpu_threads` inside the block; restores the number of threads after it."""
    before = torch.get_num_threads()
    share_cpu_threads(device)
    try:
        yield
    finally:
        torch.set_num_threads(before)
