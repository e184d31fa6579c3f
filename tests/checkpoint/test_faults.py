"""Every fault of a checkpoint, made on a real one: its own class, all names, before any allocation.

The functions that damage a folder serve other test files too. Each returns the names that the error
must carry.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mosslive import load_lm
from mosslive.checkpoint import Checkpoint, CheckpointError, faults
from mosslive.model import weights

INDEX = "model.safetensors.index.json"
Q_NORM = "model.shared_block.layers.0.self_attn.q_norm.weight"  # [16], first shard
K_PROJ = "model.text_block.layers.1.self_attn.k_proj.weight"  # [32, 64], a later shard
TEXT_HEAD = "text_lm_head.weight"  # [640, 64], a later shard
AUDIO_HEAD = "audio_lm_head.weight"  # [512, 64], alone in the last shard

Damage = Callable[[Path], list[str]]


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def edit_index(folder: Path, **changes: Any) -> None:
    """Changes top-level fields of the index."""
    path = folder / INDEX
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def weight_map(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / INDEX).read_text())["weight_map"]
    return found


def home(folder: Path, name: str) -> Path:
    return folder / weight_map(folder)[name]


def put(folder: Path, name: str, tensor: Tensor | None, shard: Path | None = None) -> None:
    """Replaces a tensor in its shard, or adds it to `shard`; None takes it out."""
    path = shard or home(folder, name)
    tensors = load_file(path)
    tensors.pop(name, None)
    save_file(tensors if tensor is None else tensors | {name: tensor}, path)


def stored(folder: Path, name: str) -> Tensor:
    return load_file(home(folder, name))[name]


def split_shard(path: Path) -> tuple[dict[str, Any], bytes]:
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    return json.loads(raw[8:end]), raw[end:]


def join_shard(path: Path, header: bytes, data: bytes) -> None:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def _missing(folder: Path) -> list[str]:
    names = [Q_NORM, K_PROJ, TEXT_HEAD]
    for name in names:
        put(folder, name, None)
    kept = {name: file for name, file in weight_map(folder).items() if name not in names}
    edit_index(folder, weight_map=kept)
    return names


def _unexpected(folder: Path) -> list[str]:
    names = ["model.norm.weight", "model.shared_block.layers.0.self_attn.q_proj.bias"]
    for name, shard in zip(names, shards(folder), strict=False):
        put(folder, name, torch.zeros(64, dtype=torch.bfloat16), shard)
    edit_index(folder, weight_map=weight_map(folder) | {names[0]: shards(folder)[0].name})
    return names


def _in_two_shards(folder: Path) -> list[str]:
    put(folder, Q_NORM, stored(folder, Q_NORM), shards(folder)[-1])
    put(folder, TEXT_HEAD, stored(folder, TEXT_HEAD), shards(folder)[0])
    return [Q_NORM, TEXT_HEAD]


def _twice_in_a_header(folder: Path) -> list[str]:
    path = home(folder, Q_NORM)
    header, data = split_shard(path)
    again = header[Q_NORM] | {"data_offsets": [len(data), len(data) + 32]}
    text = json.dumps(header)[:-1] + f", {json.dumps(Q_NORM)}: {json.dumps(again)}}}"
    join_shard(path, text.encode(), data + bytes(32))
    return [Q_NORM]


def _misshaped(folder: Path) -> list[str]:
    put(folder, Q_NORM, torch.ones(17, dtype=torch.bfloat16))
    put(folder, K_PROJ, stored(folder, K_PROJ).T.contiguous())
    return [Q_NORM, K_PROJ]


def _wrong_dtype(folder: Path) -> list[str]:
    put(folder, Q_NORM, stored(folder, Q_NORM).float())
    put(folder, K_PROJ, stored(folder, K_PROJ).half())
    return [Q_NORM, K_PROJ]


def _cut(*keep: int) -> Damage:
    """Keeps the first bytes of a shard (negative: drops the last ones)."""

    def damage(folder: Path) -> list[str]:
        paths = shards(folder)[: len(keep)]
        for path, count in zip(paths, keep, strict=True):
            path.write_bytes(path.read_bytes()[:count])
        return [path.name for path in paths]

    return damage


def _header(raw: bytes, data: bytes | None = None) -> Damage:
    """Replaces the whole header of the first shard, and its data if given."""

    def damage(folder: Path) -> list[str]:
        path = shards(folder)[0]
        join_shard(path, raw, split_shard(path)[1] if data is None else data)
        return [path.name]

    return damage


def _entry(key: str = Q_NORM, **changes: Any) -> Damage:
    """Changes one entry of a header and keeps the data."""

    def damage(folder: Path) -> list[str]:
        path = home(folder, Q_NORM)
        header, data = split_shard(path)
        header[key] |= changes
        join_shard(path, json.dumps(header).encode(), data)
        return [path.name]

    return damage


def _last_entry_moved(by: int) -> Damage:
    """Leaves a hole of `by` bytes before the last tensor, or lets it overlap the one before."""

    def damage(folder: Path) -> list[str]:
        path = shards(folder)[0]
        header, data = split_shard(path)
        entries = [fields for name, fields in header.items() if name != "__metadata__"]
        last = max(entries, key=lambda fields: fields["data_offsets"][1])
        last["data_offsets"] = [offset + by for offset in last["data_offsets"]]
        join_shard(path, json.dumps(header).encode(), (data + bytes(64))[: len(data) + by])
        return [path.name]

    return damage


def _bytes_after_the_end(folder: Path) -> list[str]:
    path = shards(folder)[0]
    path.write_bytes(path.read_bytes() + bytes(3))
    return [path.name]


def _endless_header(folder: Path) -> list[str]:
    path = shards(folder)[0]
    with path.open("wb") as file:
        file.write(b"\xff" * 8)
        file.truncate(100_000_009)  # sparse; larger than the longest header the format allows
    return [path.name]


def _no_files(count: int) -> Damage:
    def damage(folder: Path) -> list[str]:
        gone = shards(folder)[:count]
        for path in gone:
            path.unlink()
        return [path.name for path in gone]

    return damage


def _index_names_no_file(folder: Path) -> list[str]:
    edit_index(folder, weight_map=weight_map(folder) | {Q_NORM: "nowhere.safetensors"})
    return ["nowhere.safetensors"]


def _index_names_another_shard(folder: Path) -> list[str]:
    places = weight_map(folder)
    edit_index(folder, weight_map=places | {Q_NORM: places[TEXT_HEAD], K_PROJ: places[TEXT_HEAD]})
    return [Q_NORM, K_PROJ]


def _index_names_an_empty_shard(folder: Path) -> list[str]:
    path = home(folder, AUDIO_HEAD)
    assert list(load_file(path)) == [AUDIO_HEAD]
    join_shard(path, b"{}", b"")
    return [AUDIO_HEAD]


def _index(content: str) -> Damage:
    def damage(folder: Path) -> list[str]:
        (folder / INDEX).write_text(content)
        return [INDEX]

    return damage


def _index_leads_to(place: Any) -> Damage:
    def damage(folder: Path) -> list[str]:
        shutil.copy(shards(folder)[0], folder.parent / "x")  # there, and still not to be read
        edit_index(folder, weight_map=weight_map(folder) | {Q_NORM: place})
        return [INDEX]

    return damage


def _index_is_a_folder(folder: Path) -> list[str]:
    (folder / INDEX).unlink()
    (folder / INDEX).mkdir()
    return [INDEX]


def _stray(folder: Path) -> list[str]:
    names = ["model-00009-of-00009.safetensors", "model.safetensors"]
    for name in names:
        shutil.copy(shards(folder)[0], folder / name)
    return names


def _stray_and_unexpected(folder: Path) -> list[str]:
    return _stray(folder) + _unexpected(folder)


def _no_weights(folder: Path) -> list[str]:
    for path in [*shards(folder), folder / INDEX]:
        path.unlink()
    return [INDEX]


def poison(value: float) -> Damage:
    """One bad value at the very start of one tensor and one at the very end of another."""

    def damage(folder: Path) -> list[str]:
        for name, position in ((Q_NORM, 0), (K_PROJ, -1)):
            tensor = stored(folder, name)
            tensor.view(-1)[position] = value
            put(folder, name, tensor)
        return [Q_NORM, K_PROJ]

    return damage


# (damage, fault, part of the message): what the headers alone show.
HEADER_FAULTS = [
    pytest.param(_missing, faults.MissingTensors, "(3)", id="missing"),
    pytest.param(_unexpected, faults.UnexpectedTensors, "(2)", id="unexpected"),
    pytest.param(_stray, faults.UnexpectedTensors, "not listed in the index", id="stray files"),
    pytest.param(_in_two_shards, faults.DuplicateTensors, "twice", id="in two shards"),
    pytest.param(_twice_in_a_header, faults.DuplicateTensors, "twice", id="twice in a header"),
    pytest.param(_misshaped, faults.MisshapedTensors, "[17] instead of [16]", id="misshaped"),
    pytest.param(_wrong_dtype, faults.WrongDtype, "F32", id="wrong dtype"),
    pytest.param(_cut(-7), faults.TruncatedShard, "instead of the header's", id="cut in data"),
    pytest.param(_cut(500), faults.TruncatedShard, "too few for the header", id="cut in header"),
    pytest.param(_cut(5), faults.TruncatedShard, "5 bytes", id="cut in length"),
    pytest.param(_cut(0), faults.TruncatedShard, "0 bytes", id="empty file"),
    pytest.param(_header(b"{]"), faults.MalformedShard, "bad header", id="no JSON"),
    pytest.param(_header(b""), faults.MalformedShard, "bad header", id="no header"),
    pytest.param(_header(b"7"), faults.MalformedShard, "not a JSON object", id="header a number"),
    pytest.param(_header(b"[]", b""), faults.MalformedShard, "bad header", id="header a list"),
    pytest.param(_header(b"\xff\xff"), faults.MalformedShard, "bad header", id="no UTF-8"),
    pytest.param(_header(b"\xef\xbb\xbf{}"), faults.MalformedShard, "bad header", id="byte mark"),
    pytest.param(
        _header("{}".encode("utf-16")), faults.MalformedShard, "bad header", id="UTF-16 header"
    ),
    pytest.param(
        _header(b'{"a": {"dtype": "F32", "dtype": "F32"}}'),
        *(faults.MalformedShard, "one of its fields appears twice"),
        id="field twice",
    ),
    pytest.param(
        _header(b'{"__metadata__": {}, "__metadata__": {}}'),
        *(faults.MalformedShard, "__metadata__ appears twice"),
        id="two metadata",
    ),
    pytest.param(
        _header(b'{"\\ud800": {}}'), faults.MalformedShard, "bad header", id="half a surrogate"
    ),
    pytest.param(_header(b'{"a":' * 99_999), faults.MalformedShard, "bad header", id="too deep"),
    pytest.param(_header(b'{"a": 1}'), faults.MalformedShard, "bad header", id="entry a number"),
    pytest.param(_header(b'{"a": {}}'), faults.MalformedShard, "bad header", id="empty entry"),
    pytest.param(_entry(dtype="F7"), faults.MalformedShard, "'F7'", id="unknown dtype"),
    pytest.param(_entry(shape=[-16]), faults.MalformedShard, "invalid shape", id="negative shape"),
    pytest.param(
        _entry(shape=[True]), faults.MalformedShard, "invalid shape", id="shape of booleans"
    ),
    pytest.param(_entry(shape=[15]), faults.MalformedShard, "32 bytes", id="size and shape differ"),
    pytest.param(_entry(shape=None), faults.MalformedShard, "bad header", id="no shape"),
    pytest.param(_last_entry_moved(2), faults.MalformedShard, "starts at", id="hole"),
    pytest.param(_last_entry_moved(-2), faults.MalformedShard, "starts at", id="overlap"),
    pytest.param(_entry(data_offsets=[8]), faults.MalformedShard, "bad header", id="one offset"),
    pytest.param(
        _entry("__metadata__", format=1), faults.MalformedShard, "bad header", id="bad metadata"
    ),
    pytest.param(_bytes_after_the_end, faults.MalformedShard, "3 bytes after", id="bytes after"),
    pytest.param(_endless_header, faults.MalformedShard, "not a safetensors", id="endless header"),
    pytest.param(_no_files(1), faults.DanglingIndex, "no such file", id="file gone"),
    pytest.param(_index_names_no_file, faults.DanglingIndex, "no such file", id="no such file"),
    pytest.param(
        _index_names_another_shard,
        faults.DanglingIndex,
        "the index lists them",
        id="not in that shard",
    ),
    pytest.param(
        _index_names_an_empty_shard, faults.DanglingIndex, "the index lists them", id="empty shard"
    ),
    pytest.param(_index("{"), faults.BadIndex, "weight_map", id="index no JSON"),
    pytest.param(_index("[]"), faults.BadIndex, "weight_map", id="index a list"),
    pytest.param(_index("{}"), faults.BadIndex, "weight_map", id="no weight_map"),
    pytest.param(_index('{"weight_map": []}'), faults.BadIndex, "weight_map", id="a list as map"),
    pytest.param(_index('{"a":' * 99_999), faults.BadIndex, "weight_map", id="index too deep"),
    pytest.param(_index_is_a_folder, faults.BadIndex, "weight_map", id="index a folder"),
    pytest.param(_index_leads_to("../x"), faults.BadIndex, "'../x'", id="path upwards"),
    pytest.param(_index_leads_to("/x"), faults.BadIndex, "'/x'", id="absolute path"),
    pytest.param(_index_leads_to(".."), faults.BadIndex, "'..'", id="parent folder"),
    pytest.param(_index_leads_to(""), faults.BadIndex, "''", id="empty file name"),
    pytest.param(_index_leads_to(1), faults.BadIndex, "1", id="number as file name"),
    pytest.param(_no_weights, faults.NoWeights, "neither", id="no weights"),
]
# The same fault in several files: one error that carries the names of all.
REPEATED_FAULTS = [
    pytest.param(_cut(-7, 500), faults.TruncatedShard, "truncated", id="two truncated"),
    pytest.param(_no_files(2), faults.DanglingIndex, "no such file", id="two files gone"),
    pytest.param(_stray_and_unexpected, faults.UnexpectedTensors, "", id="stray and unexpected"),
]
VALUE_FAULTS = [
    pytest.param(poison(value), faults.NonFiniteValues, "NaN or infinite", id=str(value))
    for value in (float("nan"), float("inf"), -float("inf"))
]


class Allocated(AssertionError):
    """A weight was allocated although the checkpoint is bad."""


@pytest.fixture
def no_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every weight of the model comes from this module's `torch.empty`."""

    def fail(*_: Any, **__: Any) -> NoReturn:
        raise Allocated

    monkeypatch.setattr(weights, "torch", SimpleNamespace(empty=fail))


def error_of(read: Callable[[Path], object], folder: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        read(folder)
    return caught.value


@pytest.mark.usefixtures("no_allocation")
@pytest.mark.parametrize(
    ("damage", "fault", "said"), [*HEADER_FAULTS, *REPEATED_FAULTS, *VALUE_FAULTS]
)
def test_each_fault_raises_its_class_before_anything_is_allocated(
    nano_copy: Path, damage: Damage, fault: type[CheckpointError], said: str
) -> None:
    """Each fault raises its own class with every name, and no weight is allocated before it."""
    names = damage(nano_copy)
    for read in (Checkpoint.open, load_lm):
        error = error_of(read, nano_copy)
        assert type(error) is fault
        assert sorted(error.names) == sorted(names)
        message = str(error)
        assert [name for name in [*names, str(nano_copy), said] if name not in message] == []


@pytest.mark.usefixtures("no_allocation")
def test_guard_sees_allocations(nano_copy: Path) -> None:
    """The guard of the test above works: a valid folder triggers it."""
    Checkpoint.open(nano_copy)
    with pytest.raises(Allocated):
        load_lm(nano_copy)


@pytest.mark.usefixtures("no_allocation")
@pytest.mark.parametrize(
    "places", [{}, {Q_NORM: "x" * 300}], ids=["an empty map", "a name too long for any disk"]
)
def test_index_without_usable_files_raises(nano_copy: Path, places: dict[str, str]) -> None:
    """An index without a usable file is a fault, never a usable model."""
    _no_files(4)(nano_copy)
    edit_index(nano_copy, weight_map=places)
    for read in (Checkpoint.open, load_lm):
        assert error_of(read, nano_copy).names


def test_long_lists_are_complete_in_names(nano_copy: Path) -> None:
    """`names` lists all faulty tensors, and the message gives their number."""
    names = [name for name in load_file(home(nano_copy, Q_NORM)) if name != Q_NORM]
    only = stored(nano_copy, Q_NORM)
    save_file({Q_NORM: only}, home(nano_copy, Q_NORM))
    kept = {name: file for name, file in weight_map(nano_copy).items() if name not in names}
    edit_index(nano_copy, weight_map=kept)
    error = error_of(Checkpoint.open, nano_copy)
    assert type(error) is faults.MissingTensors
    assert len(names) > 12
    assert sorted(error.names) == sorted(names)
    assert f"({len(names)})" in str(error)


def test_valid_folder_is_accepted(nano_copy: Path) -> None:
    """Rewriting a shard without changes, as the damages above do, causes no fault."""
    for path in shards(nano_copy):
        save_file(load_file(path), path)
    assert Checkpoint.open(nano_copy).folder == nano_copy
