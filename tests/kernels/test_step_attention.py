"""Attention over a growing past: the definition against single rows, the kernel against it."""

import math

import pytest
import torch
from torch import Tensor

from mosslive.kernels.gpu.step_attention import step_attention as triton_kernel
from mosslive.kernels.step_attention import step_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS, WIDTH, MOST = 2, 8, 136


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def fresh(batch: int, new: int) -> tuple[Tensor, ...]:
    """q, k, v as one projection leaves them."""
    return random(batch, new, 3, HEADS, WIDTH).unbind(2)


def pasts(batch: int) -> tuple[Tensor, Tensor]:
    """NaN where nothing was written, so that a read of it shows in the result."""
    made = random(2, batch, HEADS, MOST, WIDTH, seed=1)
    return made[0].contiguous(), made[1].contiguous()


def test_each_state_sees_exactly_what_came_before() -> None:
    """Row by row in double precision; nothing after a stream's new states matters."""
    q, k, v = fresh(2, 3)
    past_k, past_v = pasts(2)
    positions = [5, 60]
    for row, position in enumerate(positions):
        past_k[row, :, position + 3 :] = 1e4
    found = step_attention(q, k, v, past_k, past_v, torch.tensor(positions, device=DEVICE), 64)
    for row, position in enumerate(positions):
        for state in range(3):
            for head in range(HEADS):
                keys = past_k[row, head, : position + state + 1].double()
                values = past_v[row, head, : position + state + 1].double()
                assert torch.equal(keys[position:], k[row, : state + 1, head].double())
                weights = (keys @ q[row, state, head].double() / math.sqrt(WIDTH)).softmax(0)
                part = found[row, state, head * WIDTH : (head + 1) * WIDTH].double()
                torch.testing.assert_close(part, weights @ values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("new", "positions"), [(4, [0, 70, 128, 132]), (9, [0, 3, 61, 127]), (5, [63, 64, 59, 2])]
)
@pytest.mark.parametrize("bounded", [True, False])
def test_kernel_equals_the_definition(new: int, positions: list[int], bounded: bool) -> None:
    """Streams at, before and across the borders of splits; the pasts end up the same."""
    q, k, v = fresh(4, new)
    at = torch.tensor(positions, device=DEVICE)
    reach = max(positions) + new if bounded else None
    ours, theirs = pasts(4), pasts(4)
    found = triton_kernel(q, k, v, *ours, at, reach)
    wanted = step_attention(q, k, v, *theirs, at, reach)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=2e-6)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("attend", [step_attention, triton_kernel])
def test_a_full_stream_loses_nothing(attend: object) -> None:
    """An idle stream without space stays as it was before its position, and gives no NaN."""
    q, k, v = fresh(1, 4)
    past_k, past_v = pasts(1)
    before = past_k[:, :, : MOST - 2].clone()
    at = torch.tensor([MOST - 2], device=DEVICE)
    assert callable(attend)
    assert attend(q, k, v, past_k, past_v, at).isfinite().all()
    assert torch.equal(past_k[:, :, : MOST - 2], before)


def test_wrong_layouts_are_refused() -> None:
    """A launcher checks the strides that its kernel relies on."""
    q, k, v = fresh(1, 4)
    past_k, past_v = pasts(1)
    at = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    with pytest.raises(ValueError, match="one shape and stride"):
        triton_kernel(q, k.contiguous(), v, past_k, past_v, at)
    with pytest.raises(ValueError, match="contiguous"):
        triton_kernel(q, k, v, past_k.transpose(2, 3).contiguous().transpose(2, 3), past_v, at)
    with pytest.raises(ValueError, match="int64"):
        triton_kernel(q, k, v, past_k, past_v, at.int())
