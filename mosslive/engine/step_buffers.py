"""The inputs of a recorded decode step, at fixed addresses.

One copy fills the fields of the trunk, a second one those of the tails. So the trunk starts while
the host still prepares the tails' numbers. The numbers of up to `most` rows are in one block of
pinned host memory and one block of the same layout on the device. There is one more row, the
padding row. It writes to a slot that is never read. Rows that fill up a bucket are copies of it.
Knows nothing of requests or layers.
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
    "slot": (torch.int64, 1),  # where the trunk's keys and values are written
    "seen_index": (torch.int64, 2),  # by channel: index of its id in the tables of seen ids
    # Of the tails: by channel, in the order of the rows of that tail.
    "members": (torch.int64, 2),  # indices of these rows among all
    "tail_position": (torch.int64, 2),
    "tail_slot": (torch.int64, 2),
    "seen_slot": (torch.int64, 2),  # slot in the tables of seen ids
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
# Values of the padding row: an arg-max over one id, at position 0 of the padding page.
_PADDING = {"legal": 1, "temperature": 1, "top_p": 1, "penalty": 1, "greedy": 1}


class Fields(NamedTuple):
    """[R] each, or [2, R] by channel."""

    text: Tensor
    audio: Tensor
    position: Tensor
    slot: Tensor
    seen_index: Tensor
    members: Tensor
    tail_position: Tensor
    tail_slot: Tensor
    seen_slot: Tensor
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
        self,
        most: int,
        pages_per_row: int,
        padding_page: int,
        padding_slot: int,
        device: torch.device,
    ) -> None:
        """`padding_page`, `padding_slot`: what the padding row reads and writes."""
        self.most = most
        self.padding_row = most  # its index
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
            (rows, pages_per_row), padding_page, dtype=torch.int32, pin_memory=pinned
        )
        self.host_tables: NDArray[np.int32] = self._host_tables.numpy()
        self.tables = self._host_tables.to(device)  # [R, P]
        self._padding = _PADDING | {
            "slot": padding_slot,
            "tail_slot": padding_slot,
            "members": self.padding_row,
        }
        for name, array in self.host.items():
            array[:] = self._padding.get(name, 0)
        # Before the first step: a step of padding rows must not write to a page in use.
        self._device.copy_(self._host)
        self.ids = torch.zeros(2, rows, dtype=torch.int64, device=device)  # sampled
        self._host_ids = torch.zeros(2, rows, dtype=torch.int64, pin_memory=pinned)

    def fill(self, name: str, values: Sequence[float], bucket: int, channel: int = -1) -> None:
        """Writes a field of the first rows, and its padding value for the rest of the bucket."""
        array = self.host[name] if channel < 0 else self.host[name][channel]
        array[: len(values)] = values
        array[len(values) : bucket] = self._padding.get(name, 0)

    def send_trunk(self, table_rows: range | None) -> None:
        """Copies the trunk's fields, and the given rows of the page tables, to the device."""
        end = self._trunk_bytes
        self._device[:end].copy_(self._host[:end], non_blocking=True)
        if table_rows is not None:
            some = slice(table_rows.start, table_rows.stop)
            self.tables[some].copy_(self._host_tables[some], non_blocking=True)

    def send_tails(self) -> None:
        begin = self._trunk_bytes
        self._device[begin:].copy_(self._host[begin:], non_blocking=True)

    def download(self) -> NDArray[np.int64]:
        """Returns the sampled ids, [2, R]. The only wait for the device in a step."""
        self._host_ids.copy_(self.ids, non_blocking=True)
        if self.ids.is_cuda:
            torch.cuda.current_stream(self.ids.device).synchronize()
        sampled: NDArray[np.int64] = self._host_ids.numpy()
        return sampled


def _fields(block: Tensor, rows: int) -> Fields:
    """Returns views of one block of bytes. Wide types come first, so that fields are aligned."""
    views, first = {}, 0
    for name, (dtype, count) in _FIELDS.items():
        size = count * rows * dtype.itemsize
        view = block[first : first + size].view(dtype)
        views[name] = view.view(count, rows) if count > 1 else view
        first += size
    return Fields(**views)
