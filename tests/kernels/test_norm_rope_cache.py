"""The Triton kernel of `norm_rope_cache` against its definition, and that against its parts.

Triton's interpreter cuts off where it should round to bf16; float16 it rounds, so there float16
shows that every rounding is where the definition has it.
"""

import pytest
import torch
from torch import Tensor

from mosslive.kernels.gpu.norm_rope_cache import norm_rope_cache as triton_kernel
from mosslive.kernels.norm_rope_cache import norm_rope_cache
from mosslive.kernels.paged_attention import LayerPages
from mosslive.kernels.rms_norm import rms_norm
from mosslive.kernels.rotary import RotaryTable, rotate

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SHORT = torch.bfloat16 if torch.cuda.is_available() else torch.float16
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


def random(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.to(DEVICE, dtype)


class Case:
    def __init__(self, rows: int, heads: int, kv_heads: int, width: int, dtype: torch.dtype):
        self.qkv = random(rows, (heads + 2 * kv_heads) * width, seed=1, dtype=dtype)
        self.qk_norm = random(heads + kv_heads, width, seed=2, dtype=dtype)
        self.table = RotaryTable(1e6, width, 500, dtype, DEVICE)
        generator = torch.Generator().manual_seed(3)
        self.positions = torch.randint(500, (rows,), generator=generator).to(DEVICE)
        self.slots = torch.randperm(8 * rows, generator=generator)[:rows].to(DEVICE)
        self.pages = [
            LayerPages(
                *(torch.zeros(rows, 8, kv_heads, width, device=DEVICE).to(dtype) for _ in "kv")
            )
            for _ in range(2)
        ]

    def both(self) -> tuple[list[Tensor], list[Tensor]]:
        """q, k pages and v pages of the definition and of the Triton kernel."""
        results = []
        for place, pages in zip((norm_rope_cache, triton_kernel), self.pages, strict=True):
            tables = self.table.cos, self.table.signed_sin
            q = place(self.qkv, self.qk_norm, 1e-6, *tables, self.positions, self.slots, pages)
            results.append([q, *pages])
        return results[0], results[1]


def check(case: Case) -> None:
    """Bit for bit but for the float32 sum of squares, whose order may turn a rounding."""
    wanted, found = case.both()
    assert torch.equal(found[2], wanted[2])
    for one, other in zip(found[:2], wanted[:2], strict=True):
        if one.dtype != torch.float32:
            assert (one != other).float().mean() < 2e-3
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, SHORT])
@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(4, 2, 16), (9, 3, 24), (1, 1, 2)])
def test_kernel_equals_the_definition(
    heads: int, kv_heads: int, width: int, dtype: torch.dtype
) -> None:
    """Odd numbers of heads, a width that is no power of two, pages written only at the slots."""
    check(Case(5, heads, kv_heads, width, dtype))


def test_definition_is_its_parts() -> None:
    """Norm, then rotation, with each head's own weight; v is stored as it came."""
    case = Case(4, 3, 1, 8, torch.float32)
    q, k, v = case.both()[0]
    rows = case.qkv.view(4, 5, 8)
    normed = rms_norm(rows[:, :4], case.qk_norm, 1e-6)
    turned = rotate(normed, *case.table.at(case.positions))
    assert torch.equal(q, turned[:, :3])
    assert torch.equal(k.flatten(0, 1)[case.slots], turned[:, 3:])
    assert torch.equal(v.flatten(0, 1)[case.slots], rows[:, 4:])
    assert k.count_nonzero() == 4 * 8


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("rows", [1, 64, 512])
def test_full_width(rows: int) -> None:
    """The published shape."""
    check(Case(rows, 32, 8, 128, torch.bfloat16))
