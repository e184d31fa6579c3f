"""How many cores each of the two threads that compute may use: the engine's and the codec's."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def share_cpu_threads(device: str) -> None:
    """Half of PyTorch's threads for each, before either begins. With all of them both threads wait
    for one another's cores: on two busy cores a chunk of sound then took seven times as long."""
    if device == "cpu":
        torch.set_num_threads(max(1, torch.get_num_threads() // 2))


@contextmanager
def shared_cpu_threads(device: str) -> Iterator[None]:
    """The same for a while, where others want all of them afterwards."""
    before = torch.get_num_threads()
    share_cpu_threads(device)
    try:
        yield
    finally:
        torch.set_num_threads(before)
