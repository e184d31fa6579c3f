"""What a network keeps for later passes: recordings by kind or shape, and things to be used again.

Knows neither networks nor graphs. Invariant: a recording is used only while the weights it was made
with are still where they were; a copy of a network starts with nothing.
"""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from torch import Tensor

Pass = TypeVar("Pass")


class Recorded(Generic[Pass]):
    def __init__(self) -> None:
        self._passes: dict[Hashable, Pass] = {}
        self._weight: Tensor | None = None  # held, so that no other can take its place in memory

    def get(self, weight: Tensor, key: Hashable, record: Callable[[], Pass]) -> Pass:
        """The pass of this key, recorded now if there is none. `weight`: one of the network's; when
        it was moved or converted, all of them were."""
        if not self.has(weight, key):
            self._passes[key] = record()
        return self._passes[key]

    def has(self, weight: Tensor, key: Hashable) -> bool:
        """Whether there is one for the weights as they are; those made with others are dropped."""
        if self._weight is None or self._weight.data_ptr() != weight.data_ptr():
            self._passes.clear()
            self._weight = weight.detach()
        return key in self._passes

    def __deepcopy__(self, _: dict[int, Any]) -> "Recorded[Pass]":
        return Recorded()


class FreeList(Generic[Pass]):
    """Things that nobody uses now."""

    def __init__(self) -> None:
        self._free: list[Pass] = []

    def put(self, item: Pass) -> None:
        self._free.append(item)

    def take(self) -> Pass | None:
        return self._free.pop() if self._free else None

    def __deepcopy__(self, _: dict[int, Any]) -> "FreeList[Pass]":
        return FreeList()
