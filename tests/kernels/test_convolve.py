"""A dilated convolution as products, and where it is used.

On a CPU without oneDNN it must have the sums of `F.conv1d`, whatever the shape.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from mosslive.kernels import convolve as module
from mosslive.kernels.convolve import convolve, convolve_by_products

few = st.integers(1, 4)


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@settings(deadline=None, max_examples=60)
@given(
    few, few, few, st.integers(1, 7), st.integers(1, 40), few, few, st.integers(0, 9), st.booleans()
)
def test_products_equal_pytorchs_convolution(
    rows: int,
    inputs: int,
    outputs: int,
    taps: int,
    length: int,
    stride: int,
    dilation: int,
    padding: int,
    biased: bool,
) -> None:
    length += dilation * (taps - 1)  # at least one whole window
    x, weight = random(rows, inputs, length), random(outputs, inputs, taps, seed=1)
    bias = random(outputs, seed=2) if biased else None
    wanted = F.conv1d(x, weight, bias, stride, padding, dilation)
    found = convolve_by_products(x, weight, bias, stride=stride, dilation=dilation, padding=padding)
    torch.testing.assert_close(found, wanted)


def test_a_long_signal_is_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with taps times length, and pieces join without a difference."""
    x, weight = random(2, 3, 100), random(4, 3, 5, seed=1)
    wanted = F.conv1d(x, weight, dilation=3, padding=6)
    monkeypatch.setattr(module, "_MOST_VALUES", 15 * 7)
    torch.testing.assert_close(convolve_by_products(x, weight, dilation=3, padding=6), wanted)


@pytest.mark.parametrize(("dilation", "library", "by_products"), [
    (3, False, True),
    (3, True, False),
    (1, False, False),
])  # fmt: skip
def test_products_run_where_pytorch_has_no_fast_form(
    dilation: int, library: bool, by_products: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", library)
    called = []
    monkeypatch.setattr(module, "convolve_by_products", lambda *_, **__: called.append(1))
    convolve(random(1, 2, 20).float(), random(2, 2, 3).float(), dilation=dilation)
    assert bool(called) == by_products


def test_training_goes_through_products() -> None:
    """Gradients flow through: the recipe trains vocoders through these layers."""
    x, weight = random(1, 2, 20).requires_grad_(), random(2, 2, 3, seed=1).requires_grad_()
    found, wanted = (
        torch.autograd.grad(form(x, weight, dilation=2).square().sum(), (x, weight))
        for form in (convolve_by_products, F.conv1d)
    )
    torch.testing.assert_close(found, wanted)


def test_arm_computes_without_detours() -> None:
    """Importing the kernels disables oneDNN with Arm's library, and leaves it on elsewhere."""
    onednn = torch.backends.mkldnn
    on_arm = onednn.is_acl_available()  # type: ignore[no-untyped-call]
    assert onednn.enabled != on_arm
