"""Reads state dicts in PyTorch's file format without executing code from them.

Invariant: `read_pickle` returns plain named CPU tensors. Any other entry raises, unless the caller
listed it in `ignored`.
"""

import re
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mosslive.checkpoint import faults
from mosslive.checkpoint.layout import Shape

_ZIP_MAGIC = b"PK\x03\x04"
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def read_pickle(
    path: Path, under: str | None = None, ignored: Collection[str] = ()
) -> dict[str, Tensor]:
    """The state dict of a file, or the one under the key `under`. `ignored`: names of non-tensor
    entries that training code left in the file."""
    if not path.is_file():
        raise faults.NoWeights([path.name], f"no such file in {path.parent}")
    try:
        held: Any = torch.load(path, map_location="cpu", weights_only=True)
        _check_records(path)
    except faults.CheckpointError:
        raise
    except Exception as error:  # an unpickler may raise anything on bad input
        raise _unreadable(path, error) from None
    if under is not None:
        held = held.get(under) if isinstance(held, dict) else None
    if not isinstance(held, dict):
        where = f"under the key {under!r}" if under else "at the top level"
        raise faults.MalformedShard([path.name], f"no state dict {where}")
    kept = {name: value for name, value in held.items() if name not in ignored}
    if odd := [str(name) for name, value in kept.items() if not _is_plain(name, value)]:
        raise faults.MalformedShard(odd, f"in {path.name}: not plain named tensors")
    return {name: tensor.detach() for name, tensor in kept.items()}


def check_tensors(expected: Mapping[str, Shape], tensors: Mapping[str, Tensor]) -> None:
    """Raises the first kind of fault, with every affected name. Checks shapes before values: a
    small file can declare a tensor of any size."""
    if wrong := sorted(expected.keys() - tensors.keys()):
        raise faults.MissingTensors(wrong)
    if wrong := sorted(tensors.keys() - expected.keys()):
        raise faults.UnexpectedTensors(wrong)
    if wrong := [name for name, shape in expected.items() if tensors[name].shape != shape]:
        shown = [f"{n} {list(tensors[n].shape)} instead of {list(expected[n])}" for n in wrong]
        raise faults.MisshapedTensors(wrong, shown=shown)
    check_values(tensors)


def check_values(tensors: Mapping[str, Tensor]) -> None:
    if wrong := [name for name, tensor in tensors.items() if tensor.dtype not in _FLOATS]:
        shown = [f"{name} {tensors[name].dtype}" for name in wrong]
        raise faults.WrongDtype(wrong, f"allowed: {', '.join(map(str, _FLOATS))}", shown)
    if wrong := [name for name, tensor in tensors.items() if not is_finite(tensor)]:
        raise faults.NonFiniteValues(wrong)


def is_finite(tensor: Tensor) -> bool:
    """One reduction: the extremes are finite if and only if every value is."""
    return not tensor.numel() or bool(torch.stack(tensor.aminmax()).isfinite().all())


def _check_records(path: Path) -> None:
    """Compares the records of an archive with their checksums (CRC-32), which PyTorch writes and
    does not read. Takes about a second for each GB. Older files have none."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise faults.MalformedShard([path.name], f"the checksum of {damaged} is wrong")


def _is_plain(name: object, value: object) -> bool:
    """True for a dense CPU tensor with data, not a subclass; the checks rely on it."""
    if not isinstance(name, str) or type(value) not in (Tensor, nn.Parameter):
        return False
    assert isinstance(value, Tensor)
    return value.layout is torch.strided and value.device.type == "cpu"


def _unreadable(path: Path, error: Exception) -> faults.CheckpointError:
    """Replaces the library's message, which advises to let such files execute code."""
    with path.open("rb") as file:
        start = file.read(len(_ZIP_MAGIC))
    cut_zip = start == _ZIP_MAGIC and not zipfile.is_zipfile(path)
    if not start or cut_zip or isinstance(error, EOFError):
        return faults.TruncatedShard(
            [path.name], f"{path.stat().st_size} bytes, the end of the archive is missing"
        )
    if wanted := re.search(r"GLOBAL (\S+)", str(error)):
        detail = f"it refers to {wanted[1]}; allowed: only tensors; nothing was executed"
    else:
        detail = f"not a PyTorch tensor file ({type(error).__name__}); nothing was executed"
    return faults.MalformedShard([path.name], detail)
