"""The Triton kernel of `attend` against its definition: cache write and attention in one launch.

The interpreter cuts off where it should round to bf16, so there float16 stands for short numbers.
"""

import math
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mosslive.kernels.attend import attend
from mosslive.kernels.gpu.attend import attend as triton_kernel
from mosslive.kernels.graph import Graphed
from mosslive.kernels.paged_attention import (
    LayerPages,
    PagedBatch,
    make_attention_metadata,
    make_span,
)
from mosslive.kernels.rotary import RotaryTable

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SHORT = torch.bfloat16 if torch.cuda.is_available() else torch.float16
# Against the same definition in float32: the newest key and the queries are rounded three times on
# their way, the weights and the result once.
TOLERANCE = {torch.float32: 3e-5, torch.float16: 6e-3, torch.bfloat16: 4e-2}


class Case:
    """A decode step: each request at its position, pages scattered, unwritten rows NaN."""

    def __init__(
        self,
        positions: list[int],
        *,
        heads: tuple[int, int] = (4, 2),
        width: int = 16,
        page_size: int = 16,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        generator = torch.Generator().manual_seed(7)

        def random(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(dtype).to(DEVICE)

        needs = [position // page_size + 1 for position in positions]
        order = (torch.randperm(sum(needs), generator=generator) + 1).tolist()
        self.tables = [[order.pop() for _ in range(need)] for need in needs]
        size = (sum(needs) + 2, page_size, heads[1], width)
        self.k, self.v = random(*size), random(*size)
        for half in (self.k, self.v):
            half[[0, size[0] - 1]] = math.nan
            for pages, position in zip(self.tables, positions, strict=True):
                half[pages[-1], position % page_size :] = math.nan
        self.qkv = random(len(positions), (heads[0] + 2 * heads[1]) * width)
        self.qk_norm = random(heads[0] + heads[1], width)
        self.rotary = RotaryTable(1e6, width, max(positions) + 1, dtype, DEVICE)
        self.dtype, self.page_size = dtype, page_size
        slots = [
            pages[-1] * page_size + p % page_size
            for pages, p in zip(self.tables, positions, strict=True)
        ]
        self.slots = torch.tensor(slots, device=DEVICE)
        self.batch = self.batch_at(torch.tensor(positions, device=DEVICE))

    def batch_at(self, positions: Tensor) -> PagedBatch:
        spans = [
            make_span(row, pages[: p // self.page_size + 1], [p], p + 1, DEVICE)
            for row, (pages, p) in enumerate(zip(self.tables, positions.tolist(), strict=True))
        ]
        metadata = make_attention_metadata(self.tables, [1] * len(spans), DEVICE)
        return PagedBatch(positions, self.slots, spans, metadata)

    def run(self, form: object, dtype: torch.dtype) -> tuple[Tensor, LayerPages]:
        """The result, and the pages afterwards."""
        pages = LayerPages(*(half.to(dtype, copy=True) for half in (self.k, self.v)))
        given_ = (t.to(dtype) for t in (self.rotary.cos, self.rotary.signed_sin))
        result = form(  # type: ignore[operator]
            self.qkv.to(dtype), self.qk_norm.to(dtype), 1e-6, *given_, pages, self.batch
        )
        return result, pages

    def check(self) -> None:
        """The result by the definition in float32; the pages by the definition in this dtype."""
        found, pages = self.run(triton_kernel, self.dtype)
        wanted = self.run(attend, torch.float32)[0]
        bound = TOLERANCE[self.dtype]
        assert found.dtype == self.dtype
        torch.testing.assert_close(found.float(), wanted, rtol=bound, atol=bound)
        stored = self.run(attend, self.dtype)[1]
        assert torch.equal(pages.v.nan_to_num(9.0), stored.v.nan_to_num(9.0))
        # The order of a sum of squares may turn a rounding here and there.
        torch.testing.assert_close(pages.k, stored.k, equal_nan=True)


@pytest.mark.parametrize("page_size", [16, 5])
@pytest.mark.parametrize("dtype", [torch.float32, SHORT])
@pytest.mark.parametrize("position", [0, 1, 31, 32, 150])
def test_one_row(position: int, page_size: int, dtype: torch.dtype) -> None:
    """From the newest row alone to several splits; borders of pages, loop blocks and splits."""
    Case([position], heads=(4, 1), page_size=page_size, dtype=dtype).check()


@pytest.mark.parametrize("splits", [1, 2])
def test_long_splits(splits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More keys than one loop iteration of a split: those loaded after the wait count as well."""
    monkeypatch.setattr(sys.modules["mosslive.kernels.gpu.attend"], "_SPLITS", splits)
    for dtype in (torch.float32, SHORT):
        Case([200], heads=(2, 1), dtype=dtype).check()


def test_heads_and_widths_that_are_no_power_of_two() -> None:
    """Three query heads per key head, 24 wide: tiles have rows left over; and 16, which with the
    key and the value fill more than one tile of the least height."""
    Case([40], heads=(6, 2), width=24).check()
    Case([35], heads=(16, 1), width=8).check()


def test_rows_of_several_requests() -> None:
    """Cache writes come before attention: a row may see one that another request writes here."""
    case = Case([20, 21, 3], heads=(2, 1))
    case.tables[1] = case.tables[0]
    case.slots[1] = case.slots[0] + 1
    case.batch = case.batch_at(case.batch.positions)
    case.check()


@settings(derandomize=True, deadline=None, max_examples=6)
@given(st.integers(0, 99), st.sampled_from([1, 7, 16]))
def test_any_position(position: int, page_size: int) -> None:
    """At any position a row sees its own past and itself, and nothing else."""
    Case([position], heads=(2, 1), page_size=page_size).check()


def test_nan_of_the_newest_row_stays_visible() -> None:
    """NaN in the projection gives NaN in the result; nothing hides it."""
    case = Case([40], heads=(2, 1))
    case.qkv[0, -1] = math.nan  # of its value
    lost = case.run(triton_kernel, torch.float32)[0].isnan()
    assert lost[..., -1].all()
    assert not lost[..., :-1].any()


def full(positions: list[int], page_size: int = 16) -> Case:
    return Case(positions, heads=(32, 8), width=128, page_size=page_size, dtype=torch.bfloat16)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
def test_full_width() -> None:
    """The published shape, at one stream and at many."""
    full([1023]).check()
    full([n * 61 % 500 for n in range(64)]).check()
    full([3000], 64).check()
    Case([1023], heads=(32, 8), width=128).check()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
def test_a_recorded_step_serves_other_contexts() -> None:
    """A graph captured at one context gives the right result at others, however often."""
    case = full([1100])
    pages = LayerPages(case.k.clone(), case.v.clone())
    metadata = case.batch.metadata
    assert metadata is not None
    scratch = torch.zeros_like(case.slots)  # page 0 belongs to no request
    angles = case.rotary.cos, case.rotary.signed_sin

    def step(positions: Tensor) -> Tensor:
        batch = PagedBatch(positions, scratch, [], metadata)
        return triton_kernel(case.qkv, case.qk_norm, 1e-6, *angles, pages, batch)

    graph = Graphed(step, torch.tensor([0], device=DEVICE))
    for position in (1100, 0, 63, 700):
        positions = torch.tensor([position], device=DEVICE)
        case.slots = positions % 16 + 16 * case.tables[0][position // 16]
        case.batch = case.batch_at(positions)
        wanted = case.run(attend, torch.float32)[0]
        for _ in range(3):
            found = graph(positions)
            torch.testing.assert_close(found.float(), wanted, rtol=4e-2, atol=4e-2)
