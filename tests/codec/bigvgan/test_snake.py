"""The anti-aliased snake against the reference's values and a definition written out in loops."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec.bigvgan.snake import (
    SNAKE_REACH_SAMPLES,
    AntiAliasedSnake,
    sinc_filter,
)
from mosslive.kernels.snake import anti_aliased_snake
from tests.codec.bigvgan.test_bigvgan import golden, relative_error

# The first half of the published taps; the second half mirrors it.
HALF_TAPS = [0.00202896, 0.00938947, -0.02554346, -0.05765738, 0.12857258, 0.44320980]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def written_out(
    x: NDArray[np.float64], alpha: float, beta: float, up: list[float], down: list[float]
) -> list[float]:
    """One channel, sample by sample: index arithmetic only, ends continued by their last value."""
    count = len(x)
    bent = []
    for n in range(2 * count):
        inputs = range((n - 6) // 2, (n + 5) // 2 + 1)  # all j with 0 ≤ n + 5 - 2j ≤ 11
        taps = {j: n + 5 - 2 * j for j in inputs if 0 <= n + 5 - 2 * j < 12}
        assert len(taps) == 6
        value = 2 * sum(up[k] * x[min(max(j, 0), count - 1)] for j, k in taps.items())
        bent.append(value + math.sin(alpha * value) ** 2 / (beta + 1e-9))
    last = 2 * count - 1
    return [
        sum(down[k] * bent[min(max(2 * t - 5 + k, 0), last)] for k in range(12))
        for t in range(count)
    ]


def test_filter_taps() -> None:
    """The filter is a Kaiser-windowed sinc, symmetric, with sum 1."""
    taps = sinc_filter()[0, 0]
    assert taps.dtype == torch.float32
    wanted = torch.tensor(HALF_TAPS + HALF_TAPS[::-1])
    torch.testing.assert_close(taps, wanted, rtol=0, atol=1e-7)
    assert float(taps.double().sum()) == pytest.approx(1, abs=1e-7)


def test_golden() -> None:
    """One activation of the public reference, to 1e-5."""
    prefix = "resblocks.0.activations.0."
    weights, io = golden("w"), golden("io")
    tensors = {n.removeprefix(prefix): t for n, t in weights.items() if n.startswith(prefix)}
    given, wanted = io["act_in"], io["act_out"]
    snake = AntiAliasedSnake(given.shape[0], log_scale=True).requires_grad_(False)
    snake.load_state_dict(tensors, strict=True)
    assert relative_error(snake(given[None])[0], wanted) < 1e-5


@pytest.mark.parametrize("samples", [1, 2, 3, 5, 11, 24])
@pytest.mark.parametrize("log_scale", [True, False])
def test_definition(samples: int, log_scale: bool) -> None:
    """Equal to the loops for any length, with two filters that are neither equal nor symmetric."""
    x = random(2, 3, samples)
    alpha, beta = random(3, seed=1).abs() + 0.2, random(3, seed=2).abs() + 0.2
    up, down = random(1, 1, 12, seed=3), random(1, 1, 12, seed=4)
    given = (alpha.log(), beta.log()) if log_scale else (alpha, beta)
    result = anti_aliased_snake(x, *given, up, down, log_scale=log_scale)
    for row in range(2):
        for channel in range(3):
            wanted = written_out(
                x[row, channel].numpy(),
                float(alpha[channel]),
                float(beta[channel]),
                up.flatten().tolist(),
                down.flatten().tolist(),
            )
            torch.testing.assert_close(result[row, channel], torch.tensor(wanted).double())


def test_reach() -> None:
    """A sample reaches exactly five neighbours on both sides; streaming keeps as many."""
    snake = AntiAliasedSnake(2, log_scale=True).double()
    x = random(1, 2, 41)
    x[..., 20] = math.nan
    touched = snake(x)[0, 0].isnan().nonzero().flatten().tolist()
    assert touched == list(range(20 - SNAKE_REACH_SAMPLES, 20 + SNAKE_REACH_SAMPLES + 1))


def test_strided_input() -> None:
    """A transposed view gives what its contiguous copy gives."""
    snake = AntiAliasedSnake(4, log_scale=True)
    x = random(2, 9, 4, dtype=torch.float32).transpose(1, 2)
    assert not x.is_contiguous()
    torch.testing.assert_close(snake(x), snake(x.contiguous()), rtol=1e-6, atol=1e-6)


def test_half_precision_is_rounded_once() -> None:
    """bf16 in and out, float32 between: a chain of bf16 operations would differ."""
    snake = AntiAliasedSnake(5, log_scale=True).bfloat16()
    x = random(2, 5, 33, dtype=torch.float32).bfloat16()
    result = snake(x)
    assert result.dtype == torch.bfloat16
    # The same stored values, computed in float32: only the last rounding may differ.
    torch.testing.assert_close(result, snake.float()(x.float()).bfloat16(), rtol=0, atol=0)
