"""The anti-aliased snake's Triton kernel against its definition, on a GPU or in the interpreter."""

import pytest
import torch
from torch import Tensor

from mosslive.codec.bigvgan.snake import sinc_filter
from mosslive.kernels import snake as plain
from mosslive.kernels.conv1d import channels_together
from mosslive.kernels.conv1d import snake as plain_snake
from mosslive.kernels.gpu import snake as triton_snake

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def error(found: Tensor, wanted: Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max())


@pytest.mark.parametrize("samples", [1, 2, 5, 11, 40])
@pytest.mark.parametrize("log_scale", [True, False])
@pytest.mark.parametrize("channels", [3, 24])
def test_kernel_equals_the_definition(samples: int, log_scale: bool, channels: int) -> None:
    """Any length, both ends, uneven filters; float32 to its rounding."""
    x = channels_together(random(2, channels, samples))
    alpha, beta = random(channels, seed=1).abs() + 0.2, random(channels, seed=2).abs() + 0.2
    up, down = (sinc_filter().to(DEVICE) + 0.1 * random(1, 1, 12, seed=k) for k in (3, 4))
    found = triton_snake.anti_aliased_snake(x, alpha, beta, up, down, log_scale=log_scale)
    given = (t.double() for t in (x, alpha, beta, up, down))
    assert error(found, plain.anti_aliased_snake(*given, log_scale=log_scale)) < 3e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype: torch.dtype) -> None:
    """In and out in half precision, in float32 between: one step of rounding at most."""
    x = channels_together(random(1, 8, 30).to(dtype))
    held = random(8, seed=1), random(8, seed=2), sinc_filter().to(DEVICE), sinc_filter().to(DEVICE)
    found = triton_snake.anti_aliased_snake(x, *held, log_scale=True)
    wanted = plain.anti_aliased_snake(x, *held, log_scale=True)
    assert found.dtype == dtype
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(found, wanted, rtol=2 * step, atol=4 * step)


def test_a_window_in_time_needs_no_copy() -> None:
    """Rows of a batch that lie further apart than they are long."""
    x = channels_together(random(3, 4, 30))[..., 6:23]
    held = random(4, seed=1), random(4, seed=2), sinc_filter().to(DEVICE), sinc_filter().to(DEVICE)
    found = triton_snake.anti_aliased_snake(x, *held, log_scale=True)
    assert error(found, plain.anti_aliased_snake(x, *held, log_scale=True)) < 3e-6


def test_a_single_channel_has_any_stride() -> None:
    """`join` returns one channel with an ordinary stride; the kernels accept it."""
    x = random(2, 1, 30)
    assert x.stride(1) != 1
    alpha, beta = random(1, seed=1).abs() + 0.2, random(1, seed=2).abs() + 0.2
    held = alpha, beta, sinc_filter().to(DEVICE), sinc_filter().to(DEVICE)
    found = triton_snake.anti_aliased_snake(x, *held, log_scale=True)
    assert error(found, plain.anti_aliased_snake(x, *held, log_scale=True)) < 3e-6
    assert error(triton_snake.snake(x, alpha), plain_snake(x, alpha)) < 1e-5


def test_plain_snake() -> None:
    """x + sin²(αx)/α, far beyond one period too."""
    x, alpha = channels_together(300 * random(2, 5, 41)), random(5, seed=1).abs() + 0.1
    found = triton_snake.snake(x[..., 3:], alpha)
    assert error(found, plain_snake(x[..., 3:].double(), alpha.double())) < 1e-6


def test_wrong_layouts_are_refused() -> None:
    """A launcher checks the strides that its kernel relies on, and reports what is wrong."""
    held = random(4, seed=1), random(4, seed=2), sinc_filter().to(DEVICE), sinc_filter().to(DEVICE)
    with pytest.raises(ValueError, match="adjacent"):
        triton_snake.anti_aliased_snake(random(1, 4, 9), *held, log_scale=True)
    with pytest.raises(ValueError, match="adjacent"):
        triton_snake.snake(random(1, 4, 9), held[0])
    x = channels_together(random(1, 4, 9))
    with pytest.raises(ValueError, match="12 taps"):
        triton_snake.anti_aliased_snake(x, *held[:3], held[3][..., :11], log_scale=True)
