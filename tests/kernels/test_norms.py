"""The norms and the gate on the GPU (or in Triton's interpreter) against their definitions.

The interpreter cuts off where it should round to bf16, up to a step each time, so there float32 is
held tightly and bf16 loosely; a GPU is held to the definition's rounding.
"""

import pytest
import torch
from torch import Tensor

from mosslive.kernels import gpu
from mosslive.kernels.add_rms_norm import add_rms_norm
from mosslive.kernels.rms_norm import rms_norm
from mosslive.kernels.silu_mul import silu_mul

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
STEP = {torch.float32: 2e-6, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}  # relative
STEPS = 2 if CUDA else 4  # a neighbour before the weight may be one after it


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.to(dtype).to(DEVICE)


def assert_within_steps(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=STEPS * STEP[wanted.dtype], atol=1e-6)


@pytest.mark.parametrize("dtype", STEP)
@pytest.mark.parametrize(("shape", "weight_rows"), [((5, 77), 0), ((1, 128), 0), ((3, 4, 10), 4)])
def test_rms_norm_equals_its_definition(
    dtype: torch.dtype, shape: tuple[int, ...], weight_rows: int
) -> None:
    """Odd widths, and a weight per head that repeats over the rows."""
    x = random(*shape, dtype=dtype)
    weight = random(*([weight_rows] if weight_rows else []), shape[-1], dtype=dtype, seed=1)
    assert_within_steps(gpu.rms_norm(x, weight, 1e-6), rms_norm(x, weight, 1e-6))


@pytest.mark.parametrize("dtype", STEP)
@pytest.mark.parametrize("count", [1, 6])
def test_add_rms_norm_updates_in_place_and_norms_the_sum(count: int, dtype: torch.dtype) -> None:
    """The residual stream itself changes, rounded to its dtype, and what is normed is the rounded
    sum."""
    hidden, delta = (random(count, 77, dtype=dtype, seed=seed) for seed in (0, 1))
    weight = random(77, dtype=dtype, seed=2)
    expected = hidden.clone()
    wanted = add_rms_norm(expected, delta, weight, 1e-6)
    assert torch.equal(expected, hidden + delta)
    normed = gpu.add_rms_norm(hidden, delta, weight, 1e-6)
    if CUDA:
        assert torch.equal(hidden, expected)
    assert_within_steps(hidden, expected)
    assert_within_steps(normed, wanted)


def test_no_rows_are_no_launch() -> None:
    """An empty batch is allowed everywhere."""
    nothing, weight = (random(*shape, dtype=torch.float32) for shape in ((0, 8), (8,)))
    assert gpu.rms_norm(nothing, weight, 1e-6).shape == (0, 8)
    assert gpu.add_rms_norm(nothing, nothing, weight, 1e-6).shape == (0, 8)
    assert gpu.silu_mul(nothing).shape == (0, 4)


def test_layouts_the_kernels_cannot_read_are_refused() -> None:
    """Strides, dtypes and shapes are checked."""
    x, weight = (random(*shape, dtype=torch.float32) for shape in ((4, 8), (8,)))
    with pytest.raises(ValueError, match="contiguous"):
        gpu.rms_norm(x[:, ::2], weight[:4], 1e-6)
    with pytest.raises(ValueError, match="weight"):
        gpu.rms_norm(x, weight[:4], 1e-6)
    with pytest.raises(ValueError, match="dtype"):
        gpu.add_rms_norm(x, x.half(), weight, 1e-6)
    with pytest.raises(ValueError, match="gate_up"):
        gpu.silu_mul(x[:, :7].contiguous())


@pytest.mark.parametrize("dtype", STEP)
@pytest.mark.parametrize("shape", [(1, 2), (3, 2, 14), (2, 2100)])
def test_silu_mul_equals_its_definition(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Odd widths, and more than one block per row."""
    gate_up = random(*shape, dtype=dtype) * 4
    assert_within_steps(gpu.silu_mul(gate_up), silu_mul(gate_up))


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("count", [1, 64, 513])
def test_full_size(count: int) -> None:
    """At the model's width at most one value in a thousand may land on the neighbouring bf16: only
    the order of summing differs."""
    hidden, delta = (random(count, 4096, dtype=torch.bfloat16, seed=seed) for seed in (0, 1))
    weight = random(4096, dtype=torch.bfloat16, seed=2)
    expected = hidden.clone()
    wanted = add_rms_norm(expected, delta, weight, 1e-6)
    normed = gpu.add_rms_norm(hidden, delta, weight, 1e-6)
    assert torch.equal(hidden, expected)
    assert_within_steps(normed, wanted)
    assert (normed != wanted).float().mean() < 1e-3
    gate_up = random(count, 24576, dtype=torch.bfloat16)
    assert_within_steps(gpu.silu_mul(gate_up), silu_mul(gate_up))
