"""Compares the contents of a model folder with its config.

Reads headers only; `reader.scan_values` reads the data. Collects all faults, so that `inspect` can
show them. `require_valid` raises them before anything is loaded.
"""

import json
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from mosslive.checkpoint import faults
from mosslive.checkpoint.faults import CheckpointError
from mosslive.checkpoint.header import Entry, is_plain_name, read_shard
from mosslive.checkpoint.layout import (
    CONFIG_FILE,
    INDEX_FILE,
    SINGLE_FILE,
    Shape,
    expected_tensors,
    model_folder,
)
from mosslive.config import ModelConfig
from mosslive.config.files import each_once

STORED_DTYPE = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
# Also allowed for matrices, whatever the config's dtype; the values are used without a scale.
# Formats that need scales have extra tensors or config fields, which raise.
NARROW_DTYPE = "F8_E4M3"

# Of several faults the first in this order is raised: it may explain the later ones.
_ORDER = (
    faults.NoWeights,
    faults.BadIndex,
    faults.DanglingIndex,
    faults.TruncatedShard,
    faults.MalformedShard,
    faults.DuplicateTensors,
    faults.MissingTensors,
    faults.UnexpectedTensors,
    faults.MisshapedTensors,
    faults.WrongDtype,
    faults.NonFiniteValues,
)


@dataclass
class Inventory:
    folder: Path
    config: ModelConfig
    entries: dict[str, Entry] = field(default_factory=dict)
    shard_of: dict[str, Path] = field(default_factory=dict)  # tensor name → file
    found: list[CheckpointError] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        return not self.found

    def require_valid(self) -> None:
        """Raises the first fault in `_ORDER`; its message lists every fault."""
        if self.valid:
            return
        ranked = sorted(self.found, key=lambda fault: _ORDER.index(type(fault)))
        lines = "".join(f"\n  {fault.line()}" for fault in ranked)
        first = ranked[0]
        names = [name for fault in ranked if type(fault) is type(first) for name in fault.names]
        error = type(first)(names)
        error.args = (f"{self.folder}: unusable checkpoint:{lines}",)
        raise error


def take_inventory(path: str | Path) -> Inventory:
    """Compares every header in the folder with the config. Raises only `ConfigError`, if the config
    is bad; the result lists all other faults."""
    folder = model_folder(path)
    inventory = Inventory(folder, ModelConfig.from_file(folder / CONFIG_FILE))
    listed = _listed_files(inventory)
    stored: Counter[str] = Counter()
    lost: set[str] = set()  # absent tensors that another fault already covers
    for name, tensors in listed.items():
        if not os.path.isfile(folder / name):  # False, not an error, for illegal names
            inventory.found.append(faults.DanglingIndex([name], "no such file"))
            lost |= tensors
            continue
        shard = read_shard(folder / name)
        inventory.found += shard.faults
        stored.update(entry.name for entry in shard.entries)
        held = {entry.name: entry for entry in shard.entries}
        inventory.entries |= held
        inventory.shard_of |= dict.fromkeys(held, shard.path)
        absent = sorted(tensors - held.keys())
        lost.update(absent)
        if absent and (shard.entries or not shard.faults):
            detail = f"the index lists them in {name}"
            inventory.found.append(faults.DanglingIndex(absent, detail))
    if listed:
        _compare(inventory, stored, lost)
    return inventory


def _listed_files(inventory: Inventory) -> dict[str, set[str]]:
    """Weight files → the tensors that the index lists in them (none without an index)."""
    folder, found = inventory.folder, inventory.found
    if not (folder / INDEX_FILE).exists():
        if (folder / SINGLE_FILE).exists():
            return {SINGLE_FILE: set()}
        detail = f"{folder} has neither {INDEX_FILE} nor {SINGLE_FILE}"
        found.append(faults.NoWeights([INDEX_FILE], detail))
        return {}
    files: dict[str, set[str]] = defaultdict(set)
    try:
        text = (folder / INDEX_FILE).read_text(encoding="utf-8")
        weight_map = json.loads(text, object_pairs_hook=each_once)["weight_map"]
        for tensor, name in weight_map.items():
            if not is_plain_name(name):
                raise ValueError(f"{tensor} is listed in {name!r}, which is not a file name")
            files[name].add(tensor)
        if not files:
            raise ValueError("it lists no tensor")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        detail = f"{error}; allowed: an object whose weight_map maps tensor names to file names"
        found.append(faults.BadIndex([INDEX_FILE], detail))
        return {}
    stray = sorted({path.name for path in folder.glob("model*.safetensors")} - files.keys())
    if stray:
        found.append(faults.UnexpectedTensors(stray, "weight files not listed in the index"))
    return files


def _compare(inventory: Inventory, stored: Counter[str], lost: set[str]) -> None:
    expected = expected_tensors(inventory.config)
    dtype = STORED_DTYPE[inventory.config.dtype]
    entries, found = inventory.entries, inventory.found
    if missing := [name for name in expected if name not in entries and name not in lost]:
        found.append(faults.MissingTensors(missing))
    if unexpected := sorted(name for name in entries if name not in expected):
        found.append(faults.UnexpectedTensors(unexpected))
    if twice := sorted(name for name, count in stored.items() if count > 1):
        found.append(faults.DuplicateTensors(twice))
    common = [(entries[name], shape) for name, shape in expected.items() if name in entries]
    if misshaped := [(entry, shape) for entry, shape in common if entry.shape != shape]:
        shown = [f"{e.name} {list(e.shape)} instead of {list(shape)}" for e, shape in misshaped]
        found.append(faults.MisshapedTensors([e.name for e, _ in misshaped], shown=shown))
    if wrong := [entry for entry, shape in common if entry.dtype not in _dtypes(dtype, shape)]:
        shown = [f"{entry.name} {entry.dtype}" for entry in wrong]
        allowed = f"allowed: {dtype} (dtype of config.json); for matrices also {NARROW_DTYPE}"
        found.append(faults.WrongDtype([entry.name for entry in wrong], allowed, shown))


def _dtypes(dtype: str, shape: Shape) -> tuple[str, ...]:
    return (dtype, NARROW_DTYPE) if len(shape) == 2 else (dtype,)
