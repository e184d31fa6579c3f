"""Which ids each reply's history contains, as tensors on the device, for the repetition penalty.

The table has one slot per reply that uses a penalty. All other replies share slot 0. If more
replies need a slot than exist, the least recently used slot goes to another reply, and it is filled
again when its former user returns. Knows nothing of steps. Engine thread.
"""

from collections import OrderedDict

import torch
from torch import Tensor

from mosslive.engine.request import Request
from mosslive.rows import CHANNELS, Channel

_SHARED_SLOT = 0  # of replies without a penalty; its content is never used


class SeenIds:
    def __init__(self, slots: int, sizes: dict[Channel, int], device: torch.device) -> None:
        """`sizes`: ids per channel."""
        self.seen: dict[Channel, Tensor] = {  # [slots + 1, V]
            channel: torch.zeros(slots + 1, sizes[channel], dtype=torch.bool, device=device)
            for channel in CHANNELS
        }
        self._device = device
        self._free = list(range(slots, _SHARED_SLOT, -1))
        self._slots: OrderedDict[int, int] = OrderedDict()  # id(request) → slot, oldest use first

    def slot(self, request: Request) -> int:
        """Returns the request's slot. It contains all rows, except perhaps the newest."""
        if request.sampling.repetition_penalty == 1:
            return _SHARED_SLOT
        key = id(request)
        if key in self._slots:
            self._slots.move_to_end(key)
        else:
            slot = self._free.pop() if self._free else self._slots.popitem(last=False)[1]
            self._slots[key] = slot
            rows = [*request.table.rows, *request.pending]
            for index, channel in enumerate(CHANNELS):
                ids = torch.tensor([row[index] for row in rows], device=self._device)
                self.seen[channel][slot] = False
                self.seen[channel][slot].index_fill_(0, ids, True)
        return self._slots[key]

    def index(self, channel: Channel, slot: int, number: int) -> int:
        """Returns the position of id `number` of a slot in the flattened table."""
        return slot * self.seen[channel].shape[1] + number

    def add(self, channel: Channel, indices: Tensor) -> None:
        """Adds the ids at these indices (int64 [B]) to the histories of their slots."""
        self.seen[channel].view(-1).index_fill_(0, indices, True)

    def release(self, request: Request) -> None:
        if (slot := self._slots.pop(id(request), None)) is not None:
            self._free.append(slot)
