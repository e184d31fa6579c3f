"""What a network keeps between calls: its recordings (CUDA graphs, traces).

Knows neither networks nor graphs. Invariants: a recording is used only while the weights it was
made with are at the same address; a copy of a network starts with an empty cache.
"""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from torch import Tensor

Item = TypeVar("Item")


class RecordingCache(Generic[Item]):
    """Recordings of one network, by shape or another key."""

    def __init__(self) -> None:
        self._recordings: dict[Hashable, Item] = {}
        # A reference, so that no other tensor can be allocated at the same address.
        self._weight: Tensor | None = None

    def get(self, weight: Tensor, key: Hashable, record: Callable[[], Item]) -> Item:
        """Returns the recording of this key; calls `record` if there is none. `weight`: any weight
        of the network; if it was moved or converted, all were."""
        if not self.has(weight, key):
            self._recordings[key] = record()
        return self._recordings[key]

    def has(self, weight: Tensor, key: Hashable) -> bool:
        """Whether a recording exists for the current weights. Drops recordings of other weights."""
        if self._weight is None or self._weight.data_ptr() != weight.data_ptr():
            self._recordings.clear()
            self._weight = weight.detach()
        return key in self._recordings

    def __deepcopy__(self, _: dict[int, Any]) -> "RecordingCache[Item]":
        return RecordingCache()
