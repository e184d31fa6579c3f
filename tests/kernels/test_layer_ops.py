"""The operations of a layer against plain formulas, in double precision where that is possible."""

import math

import pytest
import torch
from torch import Tensor

from mosslive.kernels import (
    PagedBatch,
    RotaryTable,
    make_span,
    paged_attention,
    rms_norm,
    rotate,
    silu_mul,
    write_pages,
)

CPU = torch.device("cpu")


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_rms_norm_formula() -> None:
    """x / sqrt(mean(x²) + eps) · weight, one weight per head where given so."""
    x, weight = random(5, 3, 10), random(3, 10, seed=1)
    wide = x.double()
    wanted = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    torch.testing.assert_close(rms_norm(x, weight, 1e-6).double(), wanted, rtol=1e-5, atol=1e-6)


def test_rms_norm_rounds_before_the_weight() -> None:
    """The published order: float32 inside, rounded to bf16, then times the bf16 weight. Keeping
    float32 through the product differs somewhere, and accumulating in bf16 differs widely."""
    x, weight = random(64, 777).bfloat16(), random(777, seed=1).bfloat16()
    wide = x.float()
    normed = wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    assert torch.equal(rms_norm(x, weight, 1e-6), normed.bfloat16() * weight)
    assert not torch.equal(rms_norm(x, weight, 1e-6), (normed * weight.float()).bfloat16())


def test_rotation_formula() -> None:
    """Half-split pairs rotated by position · theta^(-2i/D); lengths stay, position 0 stays."""
    table = RotaryTable(1e6, 8, 50, torch.float32, CPU)
    positions = [0, 1, 7, 49]
    x = random(4, 3, 8)
    turned = rotate(x, *table.at(torch.tensor(positions)))
    for row, position in enumerate(positions):
        for i in range(4):
            angle = position * 1e6 ** (-2 * i / 8)
            cos, sin = math.cos(angle), math.sin(angle)
            first, second = x[row, :, i], x[row, :, i + 4]
            torch.testing.assert_close(turned[row, :, i], first * cos - second * sin)
            torch.testing.assert_close(turned[row, :, i + 4], second * cos + first * sin)
    assert torch.equal(turned[0], x[0])


def test_silu_mul_formula() -> None:
    """silu(gate) · up, gate first, silu rounded before the product."""
    gate, up = random(4, 9), random(4, 9, seed=1)
    wanted = gate / (1 + (-gate).exp()) * up
    torch.testing.assert_close(silu_mul(torch.cat((gate, up), 1)), wanted)


@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("adjacent", [True, False])
def test_attention_over_pages(page_size: int, adjacent: bool) -> None:
    """A mix of requests: prefill, one decode row, rows with holes between; each row sees exactly
    the rows up to its own position, through its own pages, query heads grouped by key head."""
    heads, kv_heads, width = 6, 2, 4
    jobs = [(list(range(5, 9)), 9), ([12], 13), ([0, 3, 4], 5), ([0], 1)]  # positions, context
    k_pages, v_pages = (torch.full((80, page_size, kv_heads, width), math.nan) for _ in "kv")
    histories, spans, next_page = [], [], 1
    count = sum(len(positions) for positions, _ in jobs)
    q = random(count, heads, width, seed=2)
    first = 0
    for number, (positions, context) in enumerate(jobs):
        need = -(-context // page_size)
        pages = list(range(next_page, next_page + need))
        next_page += need
        pages = pages if adjacent else pages[::-1]
        k, v = (random(context, kv_heads, width, seed=10 * number + s) for s in (3, 4))
        slots = [pages[p // page_size] * page_size + p % page_size for p in range(context)]
        write_pages(k_pages, k, torch.tensor(slots))
        write_pages(v_pages, v, torch.tensor(slots))
        histories.append((positions, k, v))
        spans.append(make_span(first, pages, positions, context, CPU))
        first += len(positions)
    nowhere = torch.zeros(count, dtype=torch.int64)
    out = paged_attention(q, k_pages, v_pages, PagedBatch(nowhere, nowhere, spans))
    row = 0
    for positions, k, v in histories:
        for position in positions:
            for head in range(heads):
                group = head // (heads // kv_heads)
                keys, values = (x[: position + 1, group].double() for x in (k, v))
                weights = (keys @ q[row, head].double() / math.sqrt(width)).softmax(0)
                torch.testing.assert_close(
                    out[row, head].double(), weights @ values, rtol=1e-5, atol=1e-6
                )
            row += 1
