"""The inventory of a folder: complete, read from headers alone, and with all faults."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from mosslive.checkpoint import Checkpoint, CheckpointError, faults, scan_values, take_inventory
from mosslive.config import ConfigError
from mosslive.errors import MossliveError
from tests.checkpoint.test_faults import (
    AUDIO_HEAD,
    HEADER_FAULTS,
    INDEX,
    K_PROJ,
    Q_NORM,
    TEXT_HEAD,
    Damage,
    home,
    poison,
    put,
    shards,
    stored,
)


def all_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the folder, read by the safetensors library."""
    return {name: tensor for path in shards(folder) for name, tensor in load_file(path).items()}


def merge(folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Merges the shards into one file, as small checkpoints have it."""
    tensors = {name: tensor.to(dtype) for name, tensor in all_tensors(folder).items()}
    for path in [*shards(folder), folder / INDEX]:
        path.unlink()
    save_file(tensors, folder / "model.safetensors")


def test_valid_folder(nano_folder: Path) -> None:
    """The inventory of a valid folder equals what the safetensors library finds."""
    inventory = take_inventory(nano_folder)
    tensors = all_tensors(nano_folder)
    assert inventory.valid
    assert {name: entry.shape for name, entry in inventory.entries.items()} == {
        name: tuple(tensor.shape) for name, tensor in tensors.items()
    }
    assert {entry.dtype for entry in inventory.entries.values()} == {"BF16"}
    assert {name: entry.data_bytes for name, entry in inventory.entries.items()} == {
        name: tensor.nbytes for name, tensor in tensors.items()
    }
    assert inventory.shard_of == {name: home(nano_folder, name) for name in tensors}
    inventory.require_valid()


@pytest.mark.parametrize(("damage", "fault", "said"), HEADER_FAULTS)
def test_one_damage_is_one_fault(
    nano_copy: Path, damage: Damage, fault: type[CheckpointError], said: str
) -> None:
    """Taking the inventory does not raise, and a fault is not reported twice."""
    names = damage(nano_copy)
    inventory = take_inventory(nano_copy)
    assert [type(found) for found in inventory.found] == [fault]
    assert sorted(inventory.found[0].names) == sorted(names)
    assert said in inventory.found[0].line()
    assert not inventory.valid


def test_several_faults_are_all_listed(nano_copy: Path) -> None:
    """Of several faults the first in the fixed order is raised; the message lists all."""
    put(nano_copy, "model.norm.weight", torch.zeros(64), shards(nano_copy)[0])
    put(nano_copy, Q_NORM, torch.ones(17, dtype=torch.bfloat16))
    put(nano_copy, K_PROJ, stored(nano_copy, K_PROJ).float())
    put(nano_copy, TEXT_HEAD, None)
    last = home(nano_copy, AUDIO_HEAD)
    last.write_bytes(last.read_bytes()[:-1])
    inventory = take_inventory(nano_copy)
    with pytest.raises(faults.DanglingIndex) as caught:
        inventory.require_valid()
    assert caught.value.names == [TEXT_HEAD]
    lines = str(caught.value).splitlines()[1:]
    expected = [
        (faults.DanglingIndex, TEXT_HEAD),
        (faults.TruncatedShard, last.name),
        (faults.UnexpectedTensors, "model.norm.weight"),
        (faults.MisshapedTensors, Q_NORM),
        (faults.WrongDtype, K_PROJ),
    ]
    assert len(lines) == len(expected)
    for line, (fault, name) in zip(lines, expected, strict=True):
        assert fault.title in line
        assert name in line


@pytest.mark.parametrize(
    "fault", [f for f in CheckpointError.__subclasses__() if f is not faults.EngineError]
)
def test_every_fault_has_its_rank(nano_folder: Path, fault: type[CheckpointError]) -> None:
    """Every fault class has a place in the order and can be raised."""
    inventory = take_inventory(nano_folder)
    inventory.found.append(fault(["some.tensor"]))
    with pytest.raises(fault, match=r"some\.tensor"):
        inventory.require_valid()


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    st.sampled_from([INDEX, "model-00001-of-00004.safetensors", "config.json"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 3),
    st.binary(max_size=4),
)
def test_no_bytes_cause_another_error(
    nano_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    place: float,
    cut: int,
    paste: bytes,
) -> None:
    """Any bytes in an index, a header or a config give a usable folder or a `MossliveError`."""
    folder = shutil.copytree(nano_folder, tmp_path_factory.mktemp("fuzz") / "lm")
    raw = (folder / name).read_bytes()
    text = 8 + int.from_bytes(raw[:8], "little") if name.endswith(".safetensors") else len(raw)
    position = int(place * text)
    (folder / name).write_bytes(raw[:position] + paste + raw[position + cut :])
    with contextlib.suppress(MossliveError):
        Checkpoint.open(folder)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_single_file_of_the_configs_dtype(nano_copy: Path, dtype: str) -> None:
    """A single-file checkpoint is read, in the dtype of its config."""
    merge(nano_copy, getattr(torch, dtype))
    path = nano_copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dtype": dtype}))
    inventory = take_inventory(nano_copy)
    assert inventory.found == []
    assert set(inventory.shard_of.values()) == {nano_copy / "model.safetensors"}


def test_single_file_lacks_a_tensor(nano_copy: Path) -> None:
    """Without an index, an absent tensor is reported as missing."""
    merge(nano_copy)
    put(nano_copy, Q_NORM, None, nano_copy / "model.safetensors")
    (found,) = take_inventory(nano_copy).found
    assert (type(found), found.names) == (faults.MissingTensors, [Q_NORM])


def test_headers_only(nano_copy: Path) -> None:
    """The inventory reads no data; only `scan_values` finds bad values."""
    names = poison(float("nan"))(nano_copy)
    inventory = take_inventory(nano_copy)
    assert inventory.valid
    scan_values(inventory)
    (found,) = inventory.found
    assert type(found) is faults.NonFiniteValues
    assert sorted(found.names) == sorted(names)


def test_values_of_a_folder_at_fault_are_not_read(nano_copy: Path) -> None:
    """`scan_values` does not read the data behind a bad header."""
    poison(float("nan"))(nano_copy)
    put(nano_copy, TEXT_HEAD, None)
    inventory = take_inventory(nano_copy)
    reported: list[int] = []
    scan_values(inventory, reported.append)
    assert [type(found) for found in inventory.found] == [faults.DanglingIndex]
    assert reported == []


def test_parent_folder_is_accepted(nano_copy: Path) -> None:
    """The parent folder is accepted: its lm/ is used."""
    assert take_inventory(nano_copy.parent).folder == nano_copy


def test_folder_without_config(nano_copy: Path) -> None:
    """A missing config raises, because there is nothing to compare with."""
    (nano_copy / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"config\.json: no such file"):
        take_inventory(nano_copy)
