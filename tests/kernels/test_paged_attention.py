"""The Triton kernel of paged attention against its definition, on a GPU or in the interpreter.

The interpreter cuts off where it should round to bf16, so there float16 stands for short numbers.
"""

import math
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mosslive.kernels.gpu.paged_attention import paged_attention as triton_kernel
from mosslive.kernels.graph import Graphed
from mosslive.kernels.paged_attention import (
    PagedBatch,
    make_attention_metadata,
    make_span,
    paged_attention,
    write_pages,
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
# bf16: one rounding of the weights and one of the result, each 2⁻⁹ of values up to about 3.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
SHORT = torch.bfloat16 if torch.cuda.is_available() else torch.float16


class Case:
    """Requests with random keys in scattered pages; whatever no row may see is NaN."""

    def __init__(
        self,
        jobs: list[list[int]],  # positions of each request's rows
        *,
        heads: tuple[int, int] = (4, 2),
        width: int = 16,
        page_size: int = 16,
        dtype: torch.dtype = torch.float32,
        shared: int = 0,  # leading pages that all requests have in common
    ) -> None:
        generator = torch.Generator().manual_seed(5)
        contexts = [positions[-1] + 1 for positions in jobs]
        needs = [-(-context // page_size) for context in contexts]
        order = (torch.randperm(shared + sum(needs), generator=generator) + 1).tolist()
        self.tables = []
        for need in needs:
            own = [order.pop() for _ in range(need)]
            self.tables.append(order[:shared][:need] + own[min(shared, need) :])
        size = (shared + sum(needs) + 2, page_size, heads[1], width)
        self.k, self.v = (torch.full(size, math.nan, device=DEVICE, dtype=dtype) for _ in "kv")
        for pages, context in zip(self.tables, contexts, strict=True):
            slots = torch.tensor(
                [pages[p // page_size] * page_size + p % page_size for p in range(context)],
                device=DEVICE,
            )
            for target in (self.k, self.v):
                values = torch.randn(context, *size[2:], generator=generator).to(dtype)
                write_pages(target, values.to(DEVICE), slots)
        counts = [len(positions) for positions in jobs]
        firsts = list(accumulate(counts, initial=0))
        self.q = torch.randn(firsts[-1], heads[0], width, generator=generator).to(DEVICE, dtype)
        where = torch.tensor([p for job in jobs for p in job], device=DEVICE)
        spans = [
            make_span(first, pages, positions, context, DEVICE)
            for first, pages, positions, context in zip(
                firsts, self.tables, jobs, contexts, strict=False
            )
        ]
        self.batch = PagedBatch(
            where,
            torch.zeros_like(where),
            spans,
            make_attention_metadata(self.tables, counts, DEVICE),
        )

    def check(self) -> None:
        wanted = paged_attention(self.q.double(), self.k.double(), self.v.double(), self.batch)
        found = triton_kernel(self.q, self.k, self.v, self.batch)
        tolerance = TOLERANCE[self.q.dtype]
        torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("page_size", [16, 32])
@pytest.mark.parametrize("dtype", [torch.float32, SHORT])
def test_decode(page_size: int, dtype: torch.dtype) -> None:
    """One row of each request, contexts from one key to many: the splits merge to the whole."""
    Case([[0], [16], [299], [63], [15]], heads=(4, 1), page_size=page_size, dtype=dtype).check()


@pytest.mark.parametrize("requests", [1, 9, 33])
def test_decode_of_every_number_of_requests(requests: int) -> None:
    """The number of splits depends on the number of requests; some splits stay empty."""
    Case([[(37 * n + 70) % 71] for n in range(requests)], heads=(3, 1)).check()


@pytest.mark.parametrize("dtype", [torch.float32, SHORT])
def test_prefill_and_single_rows_together(dtype: torch.dtype) -> None:
    """A long prefill, its continuation, a decode row and rows with holes, in one batch."""
    jobs = [list(range(40)), [130], list(range(30, 60)), [0, 7, 8, 70], [0]]
    Case(jobs, heads=(2, 1), dtype=dtype, page_size=32).check()


def test_heads_and_widths_that_are_no_power_of_two() -> None:
    """Three query heads per key head, 24 wide: tiles have rows left over."""
    Case([list(range(9)), [33]], heads=(6, 2), width=24).check()
    Case([[20], [40]], heads=(6, 2), width=24).check()


def test_shared_pages() -> None:
    """Requests with a common beginning read it from the same pages."""
    Case([[40], [33], list(range(36, 44))], heads=(2, 1), shared=2).check()


@settings(derandomize=True, deadline=None, max_examples=8)
@given(
    st.lists(
        st.sets(st.integers(0, 99), min_size=1, max_size=9).map(sorted), min_size=1, max_size=3
    ),
    st.sampled_from([1, 5, 16]),
)
def test_any_batch(jobs: list[list[int]], page_size: int) -> None:
    """Any rows of any requests: each row sees its own past and nothing else."""
    Case(jobs, heads=(2, 1), page_size=page_size).check()


def full(jobs: list[list[int]], page_size: int = 16) -> Case:
    return Case(jobs, heads=(32, 8), width=128, page_size=page_size, dtype=torch.bfloat16)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("page_size", [16, 64])
def test_full_width(page_size: int) -> None:
    """The published shape: decode at many contexts, prefill, continuation and a mix."""
    full([[n * 61 % 1500] for n in range(64)], page_size).check()
    full([[16_000]], page_size).check()
    full([list(range(512))], page_size).check()
    full([list(range(3000, 3300))] + [[n * 61 % 1500] for n in range(20)], page_size).check()


@pytest.mark.gpu
@gpu
def test_a_recorded_step_serves_other_contexts() -> None:
    """A graph captured at one context gives the right result at others, however often."""
    case = full([[900], [700], [1100]])
    metadata = case.batch.metadata
    assert metadata is not None

    def step(positions: Tensor) -> Tensor:
        return triton_kernel(case.q, case.k, case.v, PagedBatch(positions, positions, [], metadata))

    graph = Graphed(step, torch.tensor([0, 0, 0], device=DEVICE))
    for contexts in ([900, 700, 1100], [0, 64, 1100], [63, 300, 2]):
        spans = [
            make_span(row, case.tables[row][: position // 16 + 1], [position], position + 1, DEVICE)
            for row, position in enumerate(contexts)
        ]
        batch = PagedBatch(case.batch.positions, case.batch.slots, spans)
        wanted = paged_attention(case.q.double(), case.k.double(), case.v.double(), batch)
        for _ in range(3):
            found = graph(torch.tensor(contexts, device=DEVICE))
            torch.testing.assert_close(found.double(), wanted, rtol=2e-2, atol=2e-2)
