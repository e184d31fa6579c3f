"""The engine folder: fused weights, tokenizer, probes and a manifest; written and opened strictly.

    engine.json                 the manifest, written last
    weights-00001.safetensors   ...
    tokenizer.json              the source's, byte for byte
    generation_config.json      the source's too, if it had one
    capabilities.json           the same
    probes.safetensors          rows and reference logits

Knows files, not what the tensors are for. Invariant: a folder that `open_engine` returned has every
file at its full size, headers exactly as written, and an intact tokenizer and probes. The weights'
bytes are proven by their checksums when they are loaded, or by `check_hashes`.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mosslive.checkpoint import faults
from mosslive.checkpoint.checksum import checksum
from mosslive.checkpoint.engine_layout import Stored, stored_tensors
from mosslive.checkpoint.engine_manifest import (
    MANIFEST_FILE,
    WEIGHTS_PATTERN,
    FileRecord,
    Manifest,
    TensorRecord,
)
from mosslive.checkpoint.header import DTYPE_BYTES, read_shard
from mosslive.checkpoint.layout import TOKENIZER_FILE
from mosslive.checkpoint.writer import split_by_size, write_shard
from mosslive.config.folders import named_folder

PROBES_FILE = "probes.safetensors"
# Small enough that reading and hashing by file keeps several threads busy: nine files at full size.
SHARD_BYTES = 2_000_000_000
_HASH_THREADS = 8
_HASH_BLOCK_BYTES = 8 << 20

Progress = Callable[[int], None]  # told the bytes done since the last call


@dataclass(frozen=True)
class Placed:
    """Where a tensor's bytes are."""

    path: Path
    offset: int
    dtype: str  # safetensors' name of it
    shape: tuple[int, ...]
    data_bytes: int
    checksum: int


@dataclass(frozen=True)
class EngineFolder:
    folder: Path
    manifest: Manifest
    tensors: dict[str, Placed]

    @property
    def weight_bytes(self) -> int:
        return sum(placed.data_bytes for placed in self.tensors.values())

    @property
    def probes_path(self) -> Path:
        return self.folder / PROBES_FILE

    @property
    def tokenizer_path(self) -> Path:
        return self.folder / TOKENIZER_FILE


def is_engine(path: str | Path) -> bool:
    """Also of one that lacks its manifest: what is wrong with it is `open_engine`'s to say."""
    folder = named_folder(path)
    return (folder / MANIFEST_FILE).exists() or any(folder.glob(WEIGHTS_PATTERN))


def write_weights(
    folder: Path, tensors: Mapping[str, Stored], make: Callable[[str], Tensor], shard_bytes: int
) -> tuple[dict[str, FileRecord], dict[str, TensorRecord]]:
    """Writes `make(name)` for every name, on the CPU, in order; one tensor in memory at a time."""
    sizes = {n: DTYPE_BYTES[t.dtype] * math.prod(t.shape) for n, t in tensors.items()}
    files: dict[str, FileRecord] = {}
    records: dict[str, TensorRecord] = {}
    for number, names in enumerate(split_by_size(sizes, shard_bytes), 1):
        path = folder / f"weights-{number:05d}.safetensors"
        whole = hashlib.sha256()

        def summed(name: str, file: str = path.name) -> Tensor:
            tensor = make(name).contiguous()
            records[name] = TensorRecord(file, int(checksum(tensor)))
            return tensor

        write_shard(path, {name: tensors[name] for name in names}, summed, whole.update)
        size = path.stat().st_size
        files[path.name] = FileRecord(size, whole.hexdigest(), _header_sha256(path))
    return files, records


def open_engine(path: str | Path) -> EngineFolder:
    """Raises the fault that explains most: no manifest, its version, its content, then missing or
    cut files, changed headers, changed small files."""
    folder = Path(path)
    manifest = Manifest.read(folder)
    cut = [
        f"{name} ({_size(folder / name)} of {record.bytes} bytes)"
        for name, record in manifest.files.items()
        if _size(folder / name) != record.bytes
    ]
    lacking = sorted({TOKENIZER_FILE, PROBES_FILE} - manifest.files.keys())
    if cut or lacking:
        raise faults.IncompleteEngine([*cut, *lacking], f"in {folder}")
    stray = {p.name for p in folder.glob(WEIGHTS_PATTERN)} - manifest.files.keys()
    if stray:
        raise faults.UnexpectedTensors(sorted(stray), f"weight files {MANIFEST_FILE} does not name")
    small = {n: r for n, r in manifest.files.items() if r.header_sha256 is None}
    _compare_hashes(folder, small, lambda _: None)
    return EngineFolder(folder, manifest, _place(folder, manifest))


def check_hashes(engine: EngineFolder, progress: Progress = lambda _: None) -> None:
    """Reads every byte: with four threads 5.6 s for 18 GB in memory, measured beside an H200."""
    _compare_hashes(engine.folder, engine.manifest.files, progress)


def hash_files(paths: list[Path], progress: Progress = lambda _: None) -> dict[str, FileRecord]:
    """By file name, several files at a time."""

    def record(path: Path) -> FileRecord:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_HASH_BLOCK_BYTES):
                digest.update(block)  # leaves the interpreter to the other threads
                progress(len(block))
        return FileRecord(path.stat().st_size, digest.hexdigest())

    with ThreadPoolExecutor(_HASH_THREADS) as threads:
        return dict(zip((p.name for p in paths), threads.map(record, paths), strict=True))


def _compare_hashes(folder: Path, records: Mapping[str, FileRecord], progress: Progress) -> None:
    found = hash_files([folder / name for name in records], progress)
    changed = [name for name, record in records.items() if found[name].sha256 != record.sha256]
    if changed:
        raise faults.DamagedEngine(changed, f"in {folder}: the SHA-256 is not the manifest's")


def _place(folder: Path, manifest: Manifest) -> dict[str, Placed]:
    """Every tensor's bytes, from the headers of the weight files."""
    expected = stored_tensors(manifest.config, manifest.dtype, manifest.precision)
    placed: dict[str, Placed] = {}
    for name, record in manifest.files.items():
        if record.header_sha256 is None:
            continue
        path = folder / name
        shard = read_shard(path)
        if shard.faults or _header_sha256(path) != record.header_sha256:
            raise faults.DamagedEngine([name], f"in {folder}: its header changed")
        offset = record.bytes - sum(entry.data_bytes for entry in shard.entries)
        for entry in shard.entries:
            held = manifest.tensors.get(entry.name)
            if held and held.file == name and expected[entry.name] == (entry.dtype, entry.shape):
                size, total = entry.data_bytes, held.checksum
                placed[entry.name] = Placed(path, offset, entry.dtype, entry.shape, size, total)
            offset += entry.data_bytes
    if lacking := [name for name in expected if name not in placed]:
        raise faults.MissingTensors(lacking, f"in the weight files of {folder}")
    return {name: placed[name] for name in expected}


def _header_sha256(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(8)
        return hashlib.sha256(start + file.read(int.from_bytes(start, "little"))).hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
