"""The reader: exact values for any block size, and no second copy in memory."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mosslive.checkpoint import Checkpoint, faults, reader, scan_values, take_inventory
from tests.checkpoint.test_faults import K_PROJ, Q_NORM, TEXT_HEAD, put, stored
from tests.checkpoint.test_inventory import all_tensors, merge

# Bytes. A row of the nano model has 32, 128 or 320; none of the middle ones divides a tensor.
BLOCK_BYTES = [1, 7, 130, 1_001, 4_097, 16 << 20]

# VmHWM and not getrusage: after exec, ru_maxrss starts from the peak of the process that forked,
# so a large test run would hide every growth below its own size.
MEASURE = """
import ctypes, json, math, pathlib, re, sys
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages: they round every tensor up to 2 MB
import torch
from mosslive import load_lm
from mosslive.checkpoint.layout import expected_tensors

def peak_bytes():
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1])

torch.set_num_threads(2)
warm_up, folder, dtype = sys.argv[1:]
load_lm(warm_up, dtype=dtype, kv_rows=16)
before = peak_bytes()
lm = load_lm(folder, dtype=dtype, kv_rows=16)
grown = peak_bytes() - before
parameters = sum(map(math.prod, expected_tensors(lm.config).values()))
size = parameters * getattr(torch, dtype).itemsize
print(json.dumps({"grown": grown, "size": size}))
"""


@pytest.mark.parametrize("block_bytes", BLOCK_BYTES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_values_equal_the_librarys(
    nano_folder: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, dtype: torch.dtype
) -> None:
    """Every tensor equals what safetensors reads, bit for bit, for any block size."""
    checkpoint = Checkpoint.open(nano_folder)
    monkeypatch.setattr(reader, "_BLOCK_BYTES", block_bytes)
    different = []
    for name, expected in all_tensors(nano_folder).items():
        target = torch.full(expected.shape, torch.nan, dtype=dtype)
        checkpoint.copy_into(target, name)
        if not torch.equal(target, expected.to(dtype)):
            different.append(name)
    assert different == []


@pytest.mark.parametrize("block_bytes", BLOCK_BYTES)
@pytest.mark.parametrize("position", [0, 1_000, 20_479, 40_959])
def test_bad_value_is_found_in_any_block(
    nano_copy: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, position: int
) -> None:
    """A bad value is found in the first, a middle and the last block."""
    tensor = stored(nano_copy, TEXT_HEAD)
    tensor.view(-1)[position] = torch.nan
    put(nano_copy, TEXT_HEAD, tensor)
    inventory = take_inventory(nano_copy)
    keep = inventory.entries[TEXT_HEAD], inventory.entries[K_PROJ]
    inventory.entries = {entry.name: entry for entry in keep}  # one bad tensor, one good
    monkeypatch.setattr(reader, "_BLOCK_BYTES", block_bytes)
    scan_values(inventory)
    assert [fault.names for fault in inventory.found] == [[TEXT_HEAD]]


@pytest.mark.parametrize("value", [3.3e38, -3.3e38, 1e-40, 0.0])
def test_extreme_but_finite_values_are_accepted(nano_copy: Path, value: float) -> None:
    """The largest, the smallest and zero bf16 values are not faults."""
    put(nano_copy, K_PROJ, torch.full_like(stored(nano_copy, K_PROJ), value))
    Checkpoint.open(nano_copy)


def test_matrices_may_be_stored_in_eight_bits(nano_copy: Path) -> None:
    """float8 matrices are accepted, and NaN in them is found."""
    narrow = stored(nano_copy, K_PROJ).float().mul(64).to(torch.float8_e4m3fn)
    put(nano_copy, K_PROJ, narrow)
    target = torch.empty(narrow.shape)
    Checkpoint.open(nano_copy).copy_into(target, K_PROJ)
    assert torch.equal(target, narrow.float())
    assert target.abs().max() > 1
    narrow.view(torch.uint8)[-1, -1] = 0x7F  # float8_e4m3fn's one positive NaN
    put(nano_copy, K_PROJ, narrow)
    with pytest.raises(faults.NonFiniteValues, match=re.escape(K_PROJ)):
        Checkpoint.open(nano_copy)


def test_vectors_may_not_be_stored_in_eight_bits(nano_copy: Path) -> None:
    """A float8 vector is an error that lists the allowed dtypes."""
    put(nano_copy, Q_NORM, stored(nano_copy, Q_NORM).to(torch.float8_e4m3fn))
    with pytest.raises(faults.WrongDtype, match=r"allowed: BF16 .*; for matrices also F8_E4M3"):
        Checkpoint.open(nano_copy)


@pytest.mark.parametrize("block_bytes", [130, 16 << 20])
def test_progress_counts_every_byte_once(
    nano_folder: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    """The progress calls sum to the bytes of all tensors."""
    monkeypatch.setattr(reader, "_BLOCK_BYTES", block_bytes)
    reported: list[int] = []
    Checkpoint.open(nano_folder, reported.append)
    assert sum(reported) == sum(tensor.nbytes for tensor in all_tensors(nano_folder).values())


def test_single_file_is_read_alike(nano_copy: Path) -> None:
    """A checkpoint in a single file gives the same values as in shards."""
    expected = all_tensors(nano_copy)
    merge(nano_copy)
    checkpoint = Checkpoint.open(nano_copy)
    for name, tensor in expected.items():
        target = torch.empty_like(tensor)
        checkpoint.copy_into(target, name)
        assert torch.equal(target, tensor), name


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from Linux's /proc")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_peak_memory_of_loading(nano_folder: Path, small_folder: Path, dtype: str) -> None:
    """Loading makes no second copy: the peak is at most 1.1 times the size of the weights.

    It is 1.04 as written. Keeping a whole shard mapped or loaded, where one block would do, was
    tried and gave 1.24 in bfloat16 and 1.13 in float32. A fresh process loads the nano model first,
    so that neither imports nor first-use buffers are measured; the lower bound keeps the test from
    passing where the measurement saw nothing.
    """
    command = [sys.executable, "-c", MEASURE, str(nano_folder), str(small_folder), dtype]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert 0.9 * measured["size"] < measured["grown"] < 1.1 * measured["size"]
