"""The inputs of a recorded decode step: places that never move, filled by a copy for the trunk and
one for the tails, so that the trunk can begin while the host is still busy with the tails' numbers.

Numbers of up to `most` rows lie side by side in one block of pinned memory and in one like it on
the device. One row more than that exists: the idle row, which writes where nobody reads; rows that
only fill up a bucket are copies of it. Knows nothing of requests or layers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_FIELDS: dict[str, tuple[torch.dtype, int]] = {  # dtype, and how many numbers per row
    # Of the trunk.
    "text": (torch.int64, 1),
    "audio": (torch.int64, 1),
    "position": (torch.int64, 1),
    "slot": (torch.int64, 1),  # where the trunk's keys and values go
    "note": (torch.int64, 2),  # by channel: which place of the history its id fills
    # Of the tails: by channel, in the order of the rows that go through that tail.
    "members": (torch.int64, 2),  # which rows these are
    "tail_position": (torch.int64, 2),
    "tail_slot": (torch.int64, 2),
    "history": (torch.int64, 2),  # line of the tables of seen ids
    "seed": (torch.int64, 2),
    "step": (torch.int64, 2),
    "legal": (torch.int32, 2),
    "top_k": (torch.int32, 2),
    "temperature": (torch.float32, 2),
    "top_p": (torch.float32, 2),
    "penalty": (torch.float32, 2),
    "greedy": (torch.bool, 2),
}
_TRUNK_FIELDS = list(_FIELDS).index("members")
# What stands in a field where no row is: an arg-max over one id, at position 0 of the idle page.
_IDLE = {"legal": 1, "temperature": 1, "top_p": 1, "penalty": 1, "greedy": 1}


class Fields(NamedTuple):
    """[R] each, or [2, R] by channel."""

    text: Tensor
    audio: Tensor
    position: Tensor
    slot: Tensor
    note: Tensor
    members: Tensor
    tail_position: Tensor
    tail_slot: Tensor
    history: Tensor
    seed: Tensor
    step: Tensor
    legal: Tensor
    top_k: Tensor
    temperature: Tensor
    top_p: Tensor
    penalty: Tensor
    greedy: Tensor


class StepBuffers:
    def __init__(
        self, most: int, pages_per_row: int, idle_page: int, idle_slot: int, device: torch.device
    ) -> None:
        """`idle_page`, `idle_slot`: what the idle row reads and writes."""
        self.most = most
        self.idle = most  # index of the idle row
        rows = most + 1
        sizes = [count * rows * dtype.itemsize for dtype, count in _FIELDS.values()]
        size, self._trunk_bytes = sum(sizes), sum(sizes[:_TRUNK_FIELDS])
        pinned = device.type == "cuda"
        self._host = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
        self._device = torch.zeros(size, dtype=torch.uint8, device=device)
        self.device = _fields(self._device, rows)
        # The same memory as arrays: filling them costs microseconds where tensors cost tens.
        self.host = {name: t.numpy() for name, t in _fields(self._host, rows)._asdict().items()}
        self._host_tables = torch.full(
            (rows, pages_per_row), idle_page, dtype=torch.int32, pin_memory=pinned
        )
        self.host_tables: NDArray[np.int32] = self._host_tables.numpy()
        self.tables = self._host_tables.to(device)  # [R, P]
        self._idle = _IDLE | {"slot": idle_slot, "tail_slot": idle_slot, "members": self.idle}
        for name, array in self.host.items():
            array[:] = self._idle.get(name, 0)
        # Before anything runs: a step of idle rows must not write into a page that is in use.
        self._device.copy_(self._host)
        self.ids = torch.zeros(2, rows, dtype=torch.int64, device=device)  # what was chosen
        self._host_ids = torch.zeros(2, rows, dtype=torch.int64, pin_memory=pinned)

    def fill(self, name: str, values: Sequence[float], bucket: int, channel: int = -1) -> None:
        """The field's values of the first rows; the idle value for the rest of the bucket."""
        array = self.host[name] if channel < 0 else self.host[name][channel]
        array[: len(values)] = values
        array[len(values) : bucket] = self._idle.get(name, 0)

    def send_trunk(self, table_rows: range | None) -> None:
        """Sends the trunk's numbers; of the tables, the rows in which something changed."""
        end = self._trunk_bytes
        self._device[:end].copy_(self._host[:end], non_blocking=True)
        if table_rows is not None:
            some = slice(table_rows.start, table_rows.stop)
            self.tables[some].copy_(self._host_tables[some], non_blocking=True)

    def send_tails(self) -> None:
        begin = self._trunk_bytes
        self._device[begin:].copy_(self._host[begin:], non_blocking=True)

    def download(self) -> NDArray[np.int64]:
        """The chosen ids, [2, R]; waits for the device, once per step."""
        self._host_ids.copy_(self.ids, non_blocking=True)
        if self.ids.is_cuda:
            torch.cuda.current_stream(self.ids.device).synchronize()
        chosen: NDArray[np.int64] = self._host_ids.numpy()
        return chosen


def _fields(block: Tensor, rows: int) -> Fields:
    """Views of one block of bytes. Wide numbers come first, so that each field is aligned."""
    views, first = {}, 0
    for name, (dtype, count) in _FIELDS.items():
        size = count * rows * dtype.itemsize
        view = block[first : first + size].view(dtype)
        views[name] = view.view(count, rows) if count > 1 else view
        first += size
    return Fields(**views)
