"""Attention over pages: the definition against a contiguous past, the kernel against it."""

import pytest
import torch
from torch import Tensor

from mosslive.kernels.gpu import paged_step_attention as gpu
from mosslive.kernels.paged_step_attention import paged_step_attention
from mosslive.kernels.step_attention import step_attention

triton_kernel = gpu.paged_step_attention
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS, WIDTH, SIZE, NEW = 3, 8, 16, 4


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def fresh(rows: int) -> tuple[Tensor, ...]:
    """q, k, v as one projection leaves them."""
    return random(rows, NEW, 3, HEADS, WIDTH).unbind(2)


def tables(*rows: list[int]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int32, device=DEVICE)


def test_pages_are_a_past_in_pieces() -> None:
    """Wherever its pages lie, a row gets what it would get from a contiguous past."""
    q, k, v = fresh(2)
    past = random(2, 9, HEADS, SIZE, WIDTH, seed=1)
    pages, position = tables([7, 2, 5], [3, 8, 1]), torch.tensor([36, 16], device=DEVICE)
    flat = [each[pages].transpose(1, 2).flatten(2, 3).contiguous() for each in past]
    wanted = step_attention(q, k, v, flat[0], flat[1], position)
    found = paged_step_attention(q, k, v, past[0], past[1], pages, position)
    torch.testing.assert_close(found, wanted)
    for each, contiguous in zip(past, flat, strict=True):
        assert torch.equal(each[pages].transpose(1, 2).flatten(2, 3), contiguous)


@pytest.mark.parametrize("attend", [paged_step_attention, triton_kernel])
def test_rows_of_one_stream_see_each_other(attend: object) -> None:
    """Three rows of one stream in one call give what three calls give, in any order."""
    q, k, v = fresh(3)
    apart, together = (random(2, 4, HEADS, SIZE, WIDTH, seed=1) for _ in range(2))
    pages, position = tables(*[[2, 1]] * 3), torch.tensor([16, 8, 12], device=DEVICE)
    assert callable(attend)
    found = attend(q, k, v, together[0], together[1], pages, position)
    for row in (1, 2, 0):
        one = slice(row, row + 1)
        past = (apart[0], apart[1], pages[one], position[one])
        wanted = paged_step_attention(q[one], k[one], v[one], *past)
        torch.testing.assert_close(found[one], wanted, rtol=1e-5, atol=2e-6)
    assert torch.equal(apart, together)


@pytest.mark.parametrize(("rows", "programs"), [(1, 1024), (4, 24), (5, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_kernel_equals_the_definition(
    monkeypatch: pytest.MonkeyPatch, rows: int, programs: int, dtype: torch.dtype
) -> None:
    """At, before and after borders of pages, with one program for a row or many."""
    monkeypatch.setattr(gpu, "_PROGRAMS", programs)
    q, k, v = (each.to(dtype) for each in random(rows, NEW, 3, HEADS, WIDTH).unbind(2))
    ours, theirs = (random(2, 6 * rows, HEADS, SIZE, WIDTH, seed=1).to(dtype) for _ in range(2))
    order = torch.randperm(6 * rows, generator=torch.Generator().manual_seed(2))
    pages = order.view(rows, 6).int().to(DEVICE)
    position = torch.tensor([4 * (7 * row % 24) for row in range(rows)], device=DEVICE)
    found = triton_kernel(q, k, v, ours[0], ours[1], pages, position)
    wanted = paged_step_attention(q, k, v, theirs[0], theirs[1], pages, position)
    limit = 2e-6 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=limit)
    assert torch.equal(ours, theirs)


def test_later_entries_are_not_read() -> None:
    """What lies after a row's new states may be anything."""
    q, k, v = fresh(1)
    past = random(2, 2, HEADS, SIZE, WIDTH)
    past[:, 1, :, 12:] = torch.nan
    found = triton_kernel(q, k, v, past[0], past[1], tables([1]), torch.tensor([8], device=DEVICE))
    assert found.isfinite().all()


def test_wrong_layouts_are_refused() -> None:
    """A launcher checks what its kernel relies on."""
    q, k, v = fresh(1)
    past = random(2, 2, HEADS, SIZE, WIDTH)
    pages, position = tables([1]), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    with pytest.raises(ValueError, match="one shape and stride"):
        triton_kernel(q, k.contiguous(), v, past[0], past[1], pages, position)
    with pytest.raises(ValueError, match="int64"):
        triton_kernel(q, k, v, past[0], past[1], pages, position.int())
    with pytest.raises(ValueError, match="int32"):
        triton_kernel(q, k, v, past[0], past[1], pages.long(), position)
