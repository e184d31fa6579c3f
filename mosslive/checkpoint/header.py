"""Reads the header of a safetensors file strictly, without its data.

The safetensors library also rejects bad files, but with one opaque error and only when it opens
them. This module distinguishes the faults and detects a name that appears twice in a header.
"""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mosslive.checkpoint.faults import CheckpointError, MalformedShard, TruncatedShard
from mosslive.checkpoint.layout import Shape

# safetensors' dtype names and their sizes.
DTYPE_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "F8_E4M3": 1, "F8_E5M2": 1}
DTYPE_BYTES |= {"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_LARGEST_HEADER_BYTES = 100_000_000  # the format's own limit


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as pairs, repeated names included; arrays stay lists."""


@dataclass(frozen=True)
class Entry:
    name: str
    dtype: str
    shape: Shape
    data_bytes: int


@dataclass(frozen=True)
class Shard:
    path: Path
    entries: list[Entry]  # in storage order; a name may appear twice
    faults: list[CheckpointError]


def read_shard(path: Path) -> Shard:
    """The entries of one file, and the faults of the file itself."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or 8 + min(length, _LARGEST_HEADER_BYTES) > size:
            detail = f"{size} bytes are too few for the header"
            return Shard(path, [], [TruncatedShard([path.name], detail)])
        if length > _LARGEST_HEADER_BYTES:
            return Shard(path, [], [MalformedShard([path.name], "not a safetensors file")])
        raw = file.read(length)
    try:
        entries, end = _entries(json.loads(raw.decode("utf-8"), object_pairs_hook=_Pairs))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        return Shard(path, [], [MalformedShard([path.name], f"bad header: {error}")])
    expected = 8 + length + end
    if size < expected:
        detail = f"{size} bytes instead of the header's {expected}"
        return Shard(path, entries, [TruncatedShard([path.name], detail)])
    if size > expected:
        detail = f"{size - expected} bytes after the last tensor"
        return Shard(path, entries, [MalformedShard([path.name], detail)])
    return Shard(path, entries, [])


def _entries(pairs: Any) -> tuple[list[Entry], int]:
    """Entries in order of their data, and the offset where the data ends. Raises ValueError,
    TypeError or KeyError if the header does not follow the format."""
    if not isinstance(pairs, _Pairs):
        raise ValueError("not a JSON object")
    found: list[tuple[int, int, Entry]] = []
    if sum(name == "__metadata__" for name, _ in pairs) > 1:
        raise ValueError("__metadata__ appears twice")
    for name, fields in pairs:
        name.encode()  # raises for a lone surrogate
        if not isinstance(fields, _Pairs) or len(dict(fields)) != len(fields):
            raise ValueError(f"{name} is not an object, or one of its fields appears twice")
        if name == "__metadata__":
            if not all(isinstance(value, str) for _, value in fields):
                raise ValueError("__metadata__ may contain only strings")
            continue
        values = dict(fields)
        begin, end = values["data_offsets"]
        shape = tuple(values["shape"])
        if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
            raise ValueError(f"{name} has an invalid shape or offset")
        width = DTYPE_BYTES.get(values["dtype"])
        if width is None:
            raise ValueError(f"{name} has the unknown dtype {values['dtype']!r}")
        if end - begin != width * math.prod(shape):
            raise ValueError(f"{name} has {end - begin} bytes for shape {list(shape)}")
        found.append((begin, end, Entry(name, values["dtype"], shape, end - begin)))
    found.sort(key=lambda item: item[:2])
    position = 0
    for begin, end, entry in found:
        if begin != position:
            raise ValueError(f"{entry.name} starts at byte {begin}, not at {position}")
        position = end
    return [entry for _, _, entry in found], position


def is_plain_name(name: object) -> bool:
    """True for a file name without a path, so an index cannot point outside its folder."""
    return isinstance(name, str) and bool(name) and name == os.path.basename(name) != ".."
