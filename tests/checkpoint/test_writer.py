"""The writer: folders appear complete or not at all, and safetensors reads every shard."""

import json
import math
import weakref
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from mosslive.checkpoint.layout import Shape
from mosslive.checkpoint.writer import FolderExists, new_folder, write_shards

SHAPES: dict[str, Shape] = {"a": (3, 5), "b": (7,), "c": (1, 1), "d": (4, 2, 3), "e": (64, 9)}
DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


def value_of(name: str, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    shape = SHAPES[name]
    return (torch.arange(math.prod(shape)) - 3).view(shape).to(dtype) * (ord(name) - 90)


def test_folder_appears_when_complete(tmp_path: Path) -> None:
    """The target appears after the last file, is readable, and nothing else remains."""
    target = tmp_path / "new" / "lm"
    with new_folder(target) as work:
        assert work.parent == target.parent
        (work / "file").write_text("content")
        assert not target.exists()
    assert [path.name for path in target.parent.iterdir()] == ["lm"]
    assert (target / "file").read_text() == "content"
    assert target.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_failure_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    """An error or an interrupt leaves neither the target nor a temporary folder."""

    def write() -> None:
        with new_folder(tmp_path / "lm") as work:
            (work / "half").write_text("x")
            raise failure("in the middle")

    with pytest.raises(failure, match="in the middle"):
        write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file"])
def test_existing_target_is_left_alone(tmp_path: Path, kind: str) -> None:
    """An existing target raises and stays unchanged."""
    target = tmp_path / "lm"
    inside = target / "mine" if kind == "folder" else target
    if kind != "file":
        target.mkdir()
    if kind != "empty folder":
        inside.write_text("mine")
    with pytest.raises(FolderExists, match="lm exists already"), new_folder(target):
        pytest.fail("the body must not run")
    assert [path.name for path in tmp_path.iterdir()] == ["lm"]
    assert kind == "empty folder" or inside.read_text() == "mine"


def test_target_made_by_another_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """Of two writers the first to finish wins; the other raises and leaves nothing."""
    target = tmp_path / "lm"

    def write() -> None:
        with new_folder(target) as work:
            (work / "file").write_text("second")
            with new_folder(target) as other:
                (other / "file").write_text("first")

    with pytest.raises(FolderExists, match="lm exists already"):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["lm"]
    assert (target / "file").read_text() == "first"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shard_bytes", [1, 50, 100, 10**9])
def test_shards_are_readable_by_safetensors(tmp_path: Path, dtype: str, shard_bytes: int) -> None:
    """The library reads back names, shapes, dtype, values and metadata; data is aligned."""
    torch_dtype = DTYPES[dtype]
    write_shards(tmp_path, SHAPES, dtype, lambda name: value_of(name, torch_dtype), shard_bytes)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    files = sorted(tmp_path.glob("*.safetensors"))
    found: dict[str, torch.Tensor] = {}
    for number, path in enumerate(files):
        assert path.name == f"model-{number + 1:05d}-of-{len(files):05d}.safetensors"
        assert int.from_bytes(path.read_bytes()[:8], "little") % 8 == 0
        with safe_open(path, framework="pt") as file:
            assert file.metadata() == {"format": "pt"}
        held = load_file(path)
        assert len(held) == 1 or sum(tensor.nbytes for tensor in held.values()) <= shard_bytes
        assert all(index["weight_map"][name] == path.name for name in held)
        found |= held
    assert found.keys() == SHAPES.keys() == index["weight_map"].keys()
    for name, tensor in found.items():
        assert tensor.dtype == torch_dtype
        assert torch.equal(tensor, value_of(name, torch_dtype)), name
    assert index["metadata"] == {"total_size": sum(t.nbytes for t in found.values())}


@pytest.mark.parametrize(("shard_bytes", "count"), [(1, 5), (50, 3), (10**9, 1)])
def test_shards_are_filled(tmp_path: Path, shard_bytes: int, count: int) -> None:
    """A shard is closed only when the next tensor does not fit: 30+14, 2+48, 1152 bytes at 50."""
    write_shards(tmp_path, SHAPES, "BF16", value_of, shard_bytes)
    assert len(list(tmp_path.glob("*.safetensors"))) == count


def test_views_are_written_in_their_own_order(tmp_path: Path) -> None:
    """A transposed view is stored with its own values, not in its memory order."""
    expected = torch.arange(15, dtype=torch.bfloat16).view(5, 3).T
    write_shards(tmp_path, {"a": (3, 5)}, "BF16", lambda _: expected, 10**9)
    (path,) = tmp_path.glob("*.safetensors")
    assert torch.equal(load_file(path)["a"], expected)


def test_one_tensor_is_in_memory_at_a_time(tmp_path: Path) -> None:
    """A written tensor is freed before the next is made; the largest are 1.2 GB each."""
    made: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def make(name: str) -> torch.Tensor:
        alive.append(sum(reference() is not None for reference in made))
        tensor = value_of(name)
        made.append(weakref.ref(tensor))
        return tensor

    write_shards(tmp_path, SHAPES, "BF16", make, 100)
    assert alive == [0] * len(SHAPES)
