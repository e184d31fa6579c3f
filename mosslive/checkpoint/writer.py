"""Writes a checkpoint in the published layout: sharded, streamed and atomic.

Holds one tensor in memory at a time, whatever the size of the model; `safetensors.save_file` needs
a whole shard. A folder gets its final name only when every file in it is complete.
"""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from mosslive.checkpoint.header import DTYPE_BYTES
from mosslive.checkpoint.layout import INDEX_FILE, Shape
from mosslive.errors import MossliveError


class FolderExists(MossliveError):
    """The output exists already; it was not changed."""


class NoSpace(MossliveError):
    """The disk has too little free space for the output."""


def require_space(out: Path, needed: int) -> None:
    """Raises `NoSpace` before anything is written. `needed`: bytes of tensors."""
    existing = next(p for p in (out.absolute(), *out.absolute().parents) if p.exists())
    free = shutil.disk_usage(existing).free
    if free < needed * 1.02:  # headers, index, tokenizer
        raise NoSpace(
            f"{out} needs {needed / 1e9:.1f} GB and its disk has {free / 1e9:.1f} GB free"
        )


def require_new(target: Path) -> None:
    """Raises `FolderExists`, also for a dangling link: the final rename would fail on it."""
    if os.path.lexists(target):
        raise FolderExists(f"{target} exists already; choose another folder or remove it")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yields a temporary sibling folder; renames it to `target`, or removes it on any failure."""
    require_new(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield work
        work.chmod(0o755)  # mkdtemp makes it private
        try:
            os.rename(work, target)
        except OSError:
            if target.exists():  # another process was faster
                raise FolderExists(f"{target} exists already; nothing was changed") from None
            raise
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def write_shards(
    folder: Path,
    shapes: dict[str, Shape],
    dtype: str,
    make: Callable[[str], Tensor],
    shard_bytes: int,
) -> None:
    """Writes `make(name)` for every name, and the index. `dtype`: safetensors' name."""
    width = DTYPE_BYTES[dtype]
    shards = split_by_size({name: width * math.prod(s) for name, s in shapes.items()}, shard_bytes)
    files = [f"model-{n + 1:05d}-of-{len(shards):05d}.safetensors" for n in range(len(shards))]
    for name, shard in zip(files, shards, strict=True):
        write_shard(folder / name, {key: (dtype, shapes[key]) for key in shard}, make)
    total = width * sum(math.prod(shape) for shape in shapes.values())
    index = {
        "metadata": {"total_size": total},
        "weight_map": {
            key: name for name, shard in zip(files, shards, strict=True) for key in shard
        },
    }
    (folder / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def split_by_size(sizes: Mapping[str, int], shard_bytes: int) -> list[list[str]]:
    """Splits names, in order, into shards of at most `shard_bytes` with at least one name each."""
    shards: list[list[str]] = [[]]
    used = 0
    for name, size in sizes.items():
        if shards[-1] and used + size > shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append(name)
        used += size
    return shards


def write_shard(
    path: Path,
    tensors: Mapping[str, tuple[str, Shape]],
    make: Callable[[str], Tensor],
    watch: Callable[[memoryview], None] = lambda _: None,
) -> None:
    """Writes one file with `make(name)` for every name → (safetensors dtype, shape). `watch` gets
    all bytes as they are written."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, (dtype, shape) in tensors.items():
        end = position + DTYPE_BYTES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)  # the format aligns the data to 8 bytes
    with path.open("wb") as file:

        def write(data: memoryview) -> None:
            watch(data)
            file.write(data)

        write(memoryview(len(raw).to_bytes(8, "little") + raw))
        for name, (_, shape) in tensors.items():
            tensor = make(name).contiguous()
            assert tuple(tensor.shape) == shape, (name, tensor.shape)
            write(tensor.view(torch.uint8).flatten().numpy().data)
            del tensor  # before the next one is made
