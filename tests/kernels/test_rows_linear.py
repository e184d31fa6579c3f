"""The linear layer for a few rows: the Triton kernels against the definition."""

import pytest
import torch
from torch import Tensor

from mosslive.kernels.gpu.rows_linear import few_rows_linear as triton_kernel
from mosslive.kernels.gpu.rows_linear import rows_linear as any_rows
from mosslive.kernels.rows_linear import rows_linear

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


@pytest.mark.parametrize(("batch", "times"), [(1, 1), (1, 4), (3, 3), (2, 8)])
@pytest.mark.parametrize(("inputs", "outputs"), [(5, 3), (600, 7)])
@pytest.mark.parametrize("kind", ["plain", "residual", "gelu"])
def test_kernel_equals_the_definition(
    batch: int, times: int, inputs: int, outputs: int, kind: str
) -> None:
    """Any number of rows and channels, and what follows the product; float32 to its rounding."""
    x, bias = random(batch, times, inputs), random(outputs, seed=2)
    weight = random(outputs, inputs, seed=1) / inputs**0.5
    residual = random(batch, times, outputs, seed=3) if kind == "residual" else None
    found = triton_kernel(x, weight, bias, residual=residual, gelu=kind == "gelu")
    wide = None if residual is None else residual.double()
    wanted = rows_linear(
        x.double(), weight.double(), bias.double(), residual=wide, gelu=kind == "gelu"
    )
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("rows", [0, 8, 9, 64, 65])
@pytest.mark.parametrize("kind", ["residual", "gelu"])
def test_every_number_of_rows_has_a_kernel(rows: int, kind: str) -> None:
    """The number of rows decides which kernel runs, and changes the result by rounding only."""
    x, bias, weight = random(1, rows, 5), random(3, seed=2), random(3, 5, seed=1)
    residual = random(1, rows, 3, seed=3) if kind == "residual" else None
    found = any_rows(x, weight, bias, residual=residual, gelu=kind == "gelu")
    wanted = rows_linear(x, weight, bias, residual=residual, gelu=kind == "gelu")
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=2e-6)


def test_wrong_layouts_are_refused() -> None:
    """A launcher checks the strides that its kernel relies on."""
    x, weight, bias = random(1, 4, 8), random(6, 8, seed=1), random(6, seed=2)
    with pytest.raises(ValueError, match="contiguous"):
        triton_kernel(x, random(8, 6).T, bias)
    with pytest.raises(ValueError, match="residual"):
        triton_kernel(x, weight, bias, residual=x)
    with pytest.raises(ValueError, match="one dtype"):
        triton_kernel(x.half(), weight, bias)
