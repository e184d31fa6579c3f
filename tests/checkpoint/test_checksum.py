"""The weight checksum detects every flipped bit, for any size and block size."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mosslive.checkpoint import checksum as module
from mosslive.checkpoint.checksum import checksum

MASK = (1 << 64) - 1
HARD = settings(derandomize=True, deadline=None, max_examples=150)


def expected_checksum(data: bytes) -> int:
    """The definition, in unsigned Python integers."""
    total = len(data) * 0x94D049BB133111EB
    for place in range(-(-len(data) // 8)):
        word = int.from_bytes(data[8 * place : 8 * place + 8].ljust(8, b"\0"), "little")
        mixed = (word ^ (place * (-0x61C8864680B583EB & MASK) & MASK)) * (
            -0x40A7B892E31B1A47 & MASK
        )
        mixed &= MASK
        total += mixed ^ (mixed >> 32)
    return total & MASK


def tensor_of(data: bytes) -> Tensor:
    return torch.tensor(list(data), dtype=torch.uint8)


def unsigned(data: bytes) -> int:
    return int(checksum(tensor_of(data))) & MASK


@given(st.binary(max_size=100))
@HARD
def test_is_its_definition(data: bytes) -> None:
    """Wrapping int64 tensor arithmetic equals the unsigned definition, for any length."""
    assert unsigned(data) == expected_checksum(data)


@given(st.binary(min_size=1, max_size=64), st.data())
@HARD
def test_any_flipped_bit_shows(data: bytes, chosen: st.DataObject) -> None:
    """One changed bit always changes the checksum."""
    bit = chosen.draw(st.integers(0, 8 * len(data) - 1))
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    assert unsigned(bytes(changed)) != unsigned(data)


def test_places_count() -> None:
    """Swapped words and appended zeros change the checksum."""
    first, second = bytes(range(8)), bytes(range(100, 108))
    assert unsigned(first + second) != unsigned(second + first)
    # Words that differ in their highest bit only: a sum weighted by place would miss these.
    assert unsigned(bytes(7) + b"\x80" + bytes(8)) != unsigned(bytes(15) + b"\x80")
    assert len({unsigned(bytes(count)) for count in range(20)}) == 20


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn])
def test_blocks_and_dtypes_do_not_matter(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """The result does not depend on the block size."""
    tensor = torch.randn(37, 11, generator=torch.Generator().manual_seed(3)).to(dtype)
    whole = int(checksum(tensor))
    raw = bytes(tensor.view(torch.uint8).flatten().tolist())
    monkeypatch.setitem(module._BLOCK_WORDS, "cpu", 5)
    assert int(checksum(tensor)) == whole
    assert whole & MASK == expected_checksum(raw)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_the_same_on_a_gpu() -> None:
    """CPU and GPU give the same checksum."""
    tensor = torch.randn(9_000_001).to(torch.bfloat16)
    assert int(checksum(tensor)) == int(checksum(tensor.cuda()))
