"""Reads the tensors of a valid checkpoint, memory-mapped and copied block by block.

Mapped memory counts as resident while the mapping exists, so each block has its own mapping: during
a load the host holds the model and one block, never a whole shard.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mosslive.checkpoint.faults import MalformedShard, NonFiniteValues
from mosslive.checkpoint.header import Entry
from mosslive.checkpoint.inventory import Inventory, take_inventory
from mosslive.config import ModelConfig

_BLOCK_BYTES = 16 << 20

Progress = Callable[[int], None]  # gets the bytes done since the last call


def _no_progress(_: int) -> None:
    pass


class Checkpoint:
    """A folder with a valid inventory. `open` checks; the other methods only read."""

    def __init__(self, inventory: Inventory) -> None:
        inventory.require_valid()
        self.config: ModelConfig = inventory.config
        self.folder: Path = inventory.folder
        self._inventory = inventory

    @classmethod
    def open(cls, path: str | Path, progress: Progress = _no_progress) -> "Checkpoint":
        """Checks all headers, then all values: a bad checkpoint raises before a model is built."""
        inventory = take_inventory(path)
        scan_values(inventory, progress)
        return cls(inventory)

    def copy_into(self, target: Tensor, name: str) -> None:
        """Copies tensor `name` into `target` (same shape, any dtype or device)."""
        entry = self._inventory.entries[name]
        assert tuple(target.shape) == entry.shape, (name, target.shape)
        for first, block in self.blocks(name):
            target[first : first + block.shape[0]].copy_(block)

    def blocks(self, name: str) -> Iterator[tuple[int, Tensor]]:
        """Yields (first row, rows as stored) of one tensor, about 16 MiB at a time."""
        return _row_blocks(self._inventory.shard_of[name], self._inventory.entries[name])

    @property
    def weight_files(self) -> list[Path]:
        return sorted(set(self._inventory.shard_of.values()))


def scan_values(inventory: Inventory, progress: Progress = _no_progress) -> None:
    """Adds a fault for tensors with NaN or infinite values. Does nothing if the headers have
    faults: the bytes behind a bad header may not be tensors."""
    if not inventory.valid:
        return
    bad: list[str] = []
    for name, entry in inventory.entries.items():
        finite = True
        for _, block in _row_blocks(inventory.shard_of[name], entry):
            progress(block.nbytes)
            if block.element_size() == 1:  # torch has no aminmax for float8
                block = block.float()
            # One reduction: the extremes are finite exactly if every value is.
            finite = finite and bool(torch.stack(block.aminmax()).isfinite().all())
        if not finite:
            bad.append(name)
    if bad:
        inventory.found.append(NonFiniteValues(bad))


def _row_blocks(path: Path, entry: Entry) -> Iterator[tuple[int, Tensor]]:
    """Yields (first row, rows) of one tensor in blocks of about `_BLOCK_BYTES`."""
    rows = entry.shape[0]
    step = max(1, _BLOCK_BYTES * rows // max(1, entry.data_bytes))
    for first in range(0, rows, step):
        try:
            with safe_open(path, framework="pt") as file:
                block = file.get_slice(entry.name)[first : first + step]
        except SafetensorError as error:
            raise MalformedShard([path.name], f"safetensors cannot read it: {error}") from None
        yield first, block
