"""Float8 rows: the definition against the format's own rule, the kernel against the definition.

Triton's interpreter rounds to float8 wrongly where a carry runs into the exponent, so there the
kernel is held to values that need no rounding; a GPU is held to equal bits.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mosslive.kernels import gpu
from mosslive.kernels.quantise import LARGEST, quantise_rows

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def representable(*shape: int, seed: int = 0) -> Tensor:
    """Values of float8 times a power of two per row, one of each row the largest."""
    q = (random(*shape, seed=seed) * 100).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).float()
    q[:, shape[1] // 2] = -LARGEST
    return q * 2.0 ** torch.arange(-3, shape[0] - 3)[:, None]


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(1, 40), st.floats(1e-20, 1e20), st.integers(0, 1000))
def test_every_value_comes_back_within_half_a_step(width: int, size: float, seed: int) -> None:
    """e4m3 has 3 bits after the point: normal values within 1/16 of themselves, the small ones
    within half of its smallest step, 2⁻¹⁰ scales; the largest value of a row is exact."""
    x = random(3, width, seed=seed) * size
    q, scale = quantise_rows(x)
    back = q.float() * scale[:, None]
    bound = torch.maximum(x.abs() / 16, scale[:, None] * 2.0**-10) * (1 + 1e-5)
    assert ((back - x).abs() <= bound).all()
    torch.testing.assert_close(back.abs().amax(1), x.abs().amax(1))


def test_zero_rows_and_tiny_rows_stay_finite() -> None:
    """A scale is never zero, so nothing divides by it into NaN."""
    x = torch.tensor([[0.0, 0.0], [1e-40, -1e-42], [448.0, -1.0]])
    q, scale = quantise_rows(x)
    assert (scale > 0).all()
    assert q[0].float().tolist() == [0.0, 0.0]
    assert q.float().isfinite().all()
    assert scale[2] == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (5, 77), (2, 1030)])
def test_kernel_equals_the_definition(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Same bits and same scales, at odd widths, with a zero row among them."""
    x = representable(*shape).to(dtype)
    x[-1] *= shape[0] == 1
    q, scale = gpu.quantise_rows(x.to(DEVICE))
    wanted, wanted_scale = quantise_rows(x)
    assert torch.equal(scale.cpu(), wanted_scale)
    assert torch.equal(q.cpu().float(), wanted.float())


@pytest.mark.parametrize("place", [0, 70, 2500])
@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_visible(bad: float, place: int) -> None:
    """A row with NaN or infinity must not become finite, nor change its neighbours."""
    x = representable(3, 2600)
    x[1, place] = bad
    for name, quantise in {"definition": quantise_rows, "Triton": gpu.quantise_rows}.items():
        scale = quantise(x.to(DEVICE))[1].cpu()
        assert scale.isfinite().tolist() == [True, False, True], name
        assert bool(scale[1].isnan()) == math.isnan(bad), name


def test_layouts_the_kernel_cannot_read_are_refused() -> None:
    """Strides are checked; zero rows are allowed."""
    with pytest.raises(ValueError, match="contiguous"):
        gpu.quantise_rows(torch.zeros(4, 8, device=DEVICE).T)
    assert gpu.quantise_rows(torch.zeros(0, 8, device=DEVICE))[0].shape == (0, 8)


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("shape", [(1, 4096), (300, 12288)])
def test_full_size_bits(shape: tuple[int, int]) -> None:
    """On a GPU every rounding is the definition's."""
    x = random(*shape).bfloat16()
    q, scale = gpu.quantise_rows(x.cuda())
    wanted, wanted_scale = quantise_rows(x)
    assert torch.equal(scale.cpu(), wanted_scale)
    assert torch.equal(q.cpu().view(torch.uint8), wanted.view(torch.uint8))
