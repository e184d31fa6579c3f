"""The engine folder format: round trips, and a separate error for each kind of damage."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mosslive.checkpoint import CheckpointError, faults
from mosslive.checkpoint.engine_folder import (
    PROBES_FILE,
    check_hashes,
    hash_files,
    is_engine,
    open_engine,
    write_weights,
)
from mosslive.checkpoint.engine_layout import (
    Precision,
    fused_tensors,
    matrix_names,
    stored_tensors,
    trunk_matrices,
)
from mosslive.checkpoint.engine_manifest import MANIFEST_FILE, Manifest, _digest
from mosslive.checkpoint.layout import CONFIG_FILE, TOKENIZER_FILE, expected_tensors
from mosslive.config import ModelConfig

TORCH = {"BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn}
Damage = Callable[[Path], object]


def made(name: str, dtype: str, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(sum(name.encode()))
    return torch.randn(shape, generator=generator).to(TORCH[dtype])


@pytest.fixture(scope="module")
def written(nano_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine folder of arbitrary values, in several files, with one fp8 matrix."""
    config = ModelConfig.from_file(nano_folder / CONFIG_FILE)
    precision: dict[str, Precision] = dict.fromkeys(matrix_names(config), "bfloat16")
    precision["trunk.1.down"] = "fp8"
    stored = stored_tensors(config, "bfloat16", precision)
    folder = tmp_path_factory.mktemp("engine")
    files, records = write_weights(folder, stored, lambda n: made(n, *stored[n]), 200_000)
    (folder / TOKENIZER_FILE).write_text("any", encoding="utf-8")
    (folder / PROBES_FILE).write_bytes(b"any")
    files |= hash_files([folder / TOKENIZER_FILE, folder / PROBES_FILE])
    Manifest(config, "bfloat16", precision, {}, files, records).write(folder)
    return folder


@pytest.fixture
def engine(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "engine")


def test_every_published_tensor_is_used(nano_folder: Path) -> None:
    """The fused tensors use every tensor of the checkpoint once, with matching rows."""
    config = ModelConfig.from_file(nano_folder / CONFIG_FILE)
    published = expected_tensors(config)
    fused = fused_tensors(config)
    assert {part for tensor in fused.values() for part in tensor.parts} == published.keys()
    for name, tensor in fused.items():
        rows = [published[p][0] if len(published[p]) == 2 else 1 for p in tensor.parts]
        assert sum(rows) == (tensor.shape[0] if len(tensor.shape) == 2 else 1), name
        assert {published[part][-1] for part in tensor.parts} == {tensor.shape[-1]}, name
    assert len(trunk_matrices(config)) == 4 * config.num_shared_layers
    assert len(matrix_names(config)) == 4 * config.layers + 2


def test_locations_of_written_tensors(written: Path) -> None:
    """Each location points at the bytes that the safetensors library reads for that name."""
    engine = open_engine(written)
    check_hashes(engine)
    assert is_engine(written)
    library: dict[str, Tensor] = {}
    paths = sorted(written.glob("weights-*"))
    for path in paths:
        library |= load_file(path)
    assert len(paths) > 3
    assert engine.tensors.keys() == library.keys()
    for name, placed in engine.tensors.items():
        raw = placed.path.read_bytes()[placed.offset :][: placed.data_bytes]
        assert raw == bytes(library[name].contiguous().view(torch.uint8).flatten().tolist())
        assert (TORCH[placed.dtype], placed.shape) == (library[name].dtype, library[name].shape)
    assert engine.manifest.precision["trunk.1.down"] == "fp8"
    assert engine.tensors["trunk.1.down.scale"].dtype == "F32"


def edit(**changes: Any) -> Damage:
    """Changes the manifest and updates its digest, as another program would."""

    def damage(folder: Path) -> None:
        content = json.loads((folder / MANIFEST_FILE).read_text("utf-8"))
        content |= changes
        del content["digest"]
        content["digest"] = _digest(content)
        (folder / MANIFEST_FILE).write_text(json.dumps(content), encoding="utf-8")

    return damage


def replace_text(old: str, new: str) -> Damage:
    def damage(folder: Path) -> None:
        text = (folder / MANIFEST_FILE).read_text("utf-8")
        assert old in text
        (folder / MANIFEST_FILE).write_text(text.replace(old, new, 1), encoding="utf-8")

    return damage


def remove(pattern: str) -> Damage:
    def damage(folder: Path) -> None:
        for path in list(folder.glob(pattern)):
            path.unlink()

    return damage


def overwrite(name: str, offset: int, data: bytes) -> Damage:
    def damage(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.seek(offset)
            file.write(data)

    return damage


WEIGHTS = "weights-00002.safetensors"
DAMAGES: dict[str, tuple[Damage, type[CheckpointError], str]] = {
    "half-written": (
        remove(MANIFEST_FILE),
        faults.NotAnEngine,
        "the build or copy was not finished",
    ),
    "empty": (
        remove("*"),
        faults.NotAnEngine,
        "build an engine folder with mosslive build",
    ),
    "another format": (edit(format="gguf"), faults.NotAnEngine, "format is 'gguf'"),
    "another version": (edit(version=2), faults.EngineVersion, "version 2; this mosslive reads 1"),
    "no version": (edit(version=None), faults.EngineVersion, "Build the engine again"),
    "no json": (
        lambda folder: (folder / MANIFEST_FILE).write_text("{"),
        faults.BadManifest,
        "not readable as JSON",
    ),
    "a list": (
        lambda folder: (folder / MANIFEST_FILE).write_text("[]"),
        faults.BadManifest,
        "a JSON object",
    ),
    "a changed number": (
        replace_text('"rope_theta": 1000000', '"rope_theta": 1000001'),
        faults.BadManifest,
        "its digest does not match its content",
    ),
    "a bad config": (edit(config={"vocab_size": 3}), faults.BadManifest, "is missing"),
    "no precision": (edit(precision={}), faults.BadManifest, "precision must list the 30 matrices"),
    "no tensors": (edit(tensors={}), faults.BadManifest, "tensors must be those"),
    "a bad record": (edit(files={"a": {"size": 1}}), faults.BadManifest, "'size'"),
    "no settings": (edit(settings=None, files=None), faults.BadManifest, "has the wrong type"),
    "a path for a file": (
        edit(files={"../x": {"bytes": 1, "sha256": "0" * 64}}),
        faults.BadManifest,
        "not a file name",
    ),
    "a file gone": (
        remove(WEIGHTS),
        faults.IncompleteEngine,
        "weights-00002.safetensors (0 of",
    ),
    "a file cut": (
        lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-1]),
        faults.IncompleteEngine,
        WEIGHTS,
    ),
    "a stray file": (
        lambda folder: shutil.copy(folder / WEIGHTS, folder / "weights-00009.safetensors"),
        faults.UnexpectedTensors,
        "weights-00009.safetensors",
    ),
    "a header's metadata": (
        overwrite(WEIGHTS, 40, b"X"),
        faults.DamagedEngine,
        "the header changed",
    ),
    "a header's length": (overwrite(WEIGHTS, 7, b"\x7f"), faults.DamagedEngine, "header changed"),
    "the tokenizer": (overwrite(TOKENIZER_FILE, 0, b"A"), faults.DamagedEngine, TOKENIZER_FILE),
    "the probes": (overwrite(PROBES_FILE, 0, b"A"), faults.DamagedEngine, PROBES_FILE),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_folder(engine: Path, name: str) -> None:
    """Each kind of damage raises its own class and says what is wrong and where."""
    damage, fault, said = DAMAGES[name]
    damage(engine)
    with pytest.raises(fault) as caught:
        open_engine(engine)
    assert said in str(caught.value)
    assert type(caught.value) is fault


def test_hashes_find_a_flipped_bit(engine: Path) -> None:
    """`open_engine` reads headers only; `check_hashes` reads everything and names the file."""
    data = bytearray((engine / WEIGHTS).read_bytes())
    data[-5] ^= 4
    (engine / WEIGHTS).write_bytes(data)
    opened = open_engine(engine)
    with pytest.raises(faults.DamagedEngine, match=WEIGHTS):
        check_hashes(opened)


def test_fp8_outside_the_trunk_raises(engine: Path) -> None:
    """A manifest with an fp8 tail or head is an error."""
    content = json.loads((engine / MANIFEST_FILE).read_text("utf-8"))
    edit(precision=content["precision"] | {"text.head": "fp8"})(engine)
    with pytest.raises(faults.BadManifest, match=r"text\.head is 'fp8'; allowed: bfloat16"):
        open_engine(engine)


def test_a_tensor_in_another_file_is_missing(engine: Path) -> None:
    """A tensor is read only from the file that the manifest lists for it."""
    content = json.loads((engine / MANIFEST_FILE).read_text("utf-8"))
    content["tensors"]["text.embed"]["file"] = "weights-00003.safetensors"
    edit(tensors=content["tensors"])(engine)
    with pytest.raises(faults.MissingTensors, match=r"text\.embed"):
        open_engine(engine)


def test_manifest_is_read_as_written(written: Path) -> None:
    """Writing and reading a manifest keeps every field."""
    manifest = Manifest.read(written)
    other = written.with_name(f"{written.name}-again")
    other.mkdir()
    manifest.write(other)
    assert Manifest.read(other) == manifest
