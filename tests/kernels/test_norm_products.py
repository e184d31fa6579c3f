"""Products that begin with a norm: the definition is its parts; the Triton kernel rounds like them.

Triton's interpreter rounds to float8 wrongly where a carry runs into the exponent, so there values
need no rounding; a GPU is held to the bits of norm, then quantise, for any.
"""

import pytest
import torch
from torch import Tensor

import mosslive.kernels
from mosslive.kernels import gpu
from mosslive.kernels.add_rms_norm import add_rms_norm
from mosslive.kernels.gpu.rms_norm import norm_float8
from mosslive.kernels.gpu.silu_mul import silu_mul_float8
from mosslive.kernels.linear import Matrix, gated, linear
from mosslive.kernels.norm_products import norm_feed_forward, norm_linear
from mosslive.kernels.quantise import quantise_rows
from mosslive.kernels.rms_norm import rms_norm
from mosslive.kernels.silu_mul import silu_mul

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
EPS = 1e-6


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.to(dtype).to(DEVICE)


def matrix(n: int, k: int, seed: int, float8: bool) -> Matrix:
    weight = random(n, k, seed=seed) / k**0.5
    return Matrix(*quantise_rows(weight)) if float8 else Matrix(weight)


def assert_near(got: Tensor, wanted: Tensor, share: float) -> None:
    torch.testing.assert_close(got, wanted, rtol=0, atol=share * float(wanted.abs().max()))


@pytest.mark.parametrize("float8", [False, True])
def test_definitions_are_their_parts(float8: bool) -> None:
    """Add, norm, product; the stream keeps the sum, and without a delta it stays as it is."""
    hidden, delta, norm = random(3, 20), random(3, 20, seed=1), random(20, seed=2)
    qkv, gate_up, down = (matrix(n, k, n, float8) for n, k in ((14, 20), (12, 20), (20, 6)))
    stream = hidden.clone()
    result = norm_linear(stream, delta, norm, EPS, qkv)
    assert torch.equal(stream, hidden + delta)
    assert torch.equal(result, linear(rms_norm(hidden + delta, norm, EPS), qkv))
    assert torch.equal(
        norm_linear(hidden, None, norm, EPS, qkv), linear(rms_norm(hidden, norm, EPS), qkv)
    )
    result = norm_feed_forward(hidden.clone(), delta, norm, EPS, gate_up, down)
    inner = gated(rms_norm(hidden + delta, norm, EPS), gate_up)
    assert torch.equal(result, linear(inner, down))


def exact(count: int) -> tuple[Tensor, Tensor, Tensor, Matrix]:
    """hidden, delta and norm whose result needs no rounding to float8, and gates of it that need
    none either: the interpreter cannot round to float8. Of eps 0."""
    sign = random(count, 64).sign()
    sign[:, :2] = 1
    norm = (random(64, seed=2) * 100).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    norm[:3] = torch.tensor([128.0, 448.0, 0.0])
    gate_up = torch.zeros(64, 64, device=DEVICE)
    gate_up[:, 2] = 448 * 2.0**-9  # meets the zero, and makes the scale of float8 a power of two
    gate_up[:32, 0] = 0.5  # every gate is 64, which is its own silu
    gate_up[torch.arange(32, 64), torch.arange(32) + (torch.arange(32) > 1) * 10 + 1] = 0.5
    return 3 * sign, -2 * sign, norm, Matrix(*quantise_rows(gate_up))


def given(count: int, float8: bool) -> tuple[Tensor, Tensor, Tensor, float, list[Matrix]]:
    if float8:
        hidden, delta, norm, gate_up = exact(count)
        return hidden, delta, norm, 0.0, [matrix(40, 64, 1, True), gate_up, matrix(48, 32, 2, True)]
    sizes = ((40, 48), (64, 48), (48, 32))
    hidden, delta, norm = random(count, 48), random(count, 48, seed=1), random(48, seed=2)
    return hidden, delta, norm, EPS, [matrix(n, k, n, False) for n, k in sizes]


@pytest.mark.parametrize("float8", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3, 70])
def test_triton_kernels(count: int, float8: bool) -> None:
    """The number of rows decides which kernels run, and does not change the result."""
    hidden, delta, norm, eps, (qkv, gate_up, down) = given(count, float8)
    results = []
    for form in (mosslive.kernels, gpu):
        first, second, third = hidden + delta, hidden.clone(), hidden.clone()
        made = [
            form.norm_linear(first, None, norm, eps, qkv),
            form.norm_linear(second, delta, norm, eps, qkv),
            form.norm_feed_forward(third, delta, norm, eps, gate_up, down),
        ]
        results.append((made, (first, second, third)))
    for wanted, found in zip(results[0][0], results[1][0], strict=True):
        assert found.shape == wanted.shape
        if count:
            assert wanted.abs().max() > 0
            assert_near(found, wanted, 1e-3 if CUDA and float8 else 1e-5)
    for wanted, found in zip(results[0][1], results[1][1], strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("count", [1, 4])
def test_float8_forms_are_quantised_rows(count: int) -> None:
    """The norm and the gate that end in float8 give what `quantise_rows` gives of theirs."""
    hidden, delta, norm, gate_up = exact(count)
    wanted, wanted_scale = quantise_rows(add_rms_norm(hidden.clone(), delta, norm, 0.0))
    q, scale = norm_float8(hidden, delta, norm, 0.0)
    assert torch.equal(scale, wanted_scale)
    assert torch.equal(q.float(), wanted.float())
    gates = linear(q.float() * scale[:, None], gate_up)
    wanted, wanted_scale = quantise_rows(silu_mul(gates))
    q, scale = silu_mul_float8(gates)
    assert torch.equal(scale, wanted_scale)
    assert torch.equal(q.float(), wanted.float())


@pytest.mark.parametrize("count", [1, 3, 70])
def test_nan_reaches_the_result(count: int) -> None:
    """A row with NaN stays NaN through float8, and no other row becomes NaN."""
    hidden, delta, norm = random(count, 48), random(count, 48, seed=1), random(48, seed=2)
    hidden[-1, 5] = float("nan")
    qkv, gate_up, down = (matrix(n, k, n, True) for n, k in ((40, 48), (64, 48), (48, 32)))
    for result in (
        gpu.norm_linear(hidden.clone(), delta, norm, EPS, qkv),
        gpu.norm_feed_forward(hidden.clone(), delta, norm, EPS, gate_up, down),
    ):
        assert result[-1].isnan().all()
        assert not result[:-1].isnan().any()


def test_layouts_the_kernels_cannot_read_are_refused() -> None:
    """Shapes, strides and dtypes are checked."""
    hidden, norm, qkv = random(2, 48), random(48, seed=2), matrix(40, 48, 1, True)
    with pytest.raises(ValueError, match="delta"):
        gpu.norm_linear(hidden, hidden[:1], norm, EPS, qkv)
    with pytest.raises(ValueError, match="dtype"):
        gpu.norm_linear(hidden, hidden, norm.half(), EPS, qkv)
    with pytest.raises(ValueError, match=r"\[2, 40\]"):
        gpu.norm_linear(hidden[:, :40].contiguous(), None, norm[:40], EPS, qkv)
    with pytest.raises(ValueError, match="even number"):
        gpu.norm_feed_forward(hidden, hidden, norm, EPS, matrix(41, 48, 1, True), qkv)
    with pytest.raises(ValueError, match="gate_up"):
        silu_mul_float8(hidden[:, :7].contiguous())


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("count", [1, 64, 300])
def test_full_size_bits(count: int) -> None:
    """On a GPU: the bits of the Triton norm, then the definition's float8; and for the gate."""
    hidden, delta = (random(count, 4096, seed=s, dtype=torch.bfloat16) for s in (0, 1))
    norm = random(4096, seed=2, dtype=torch.bfloat16)
    wanted, wanted_scale = quantise_rows(gpu.add_rms_norm(hidden.clone(), delta, norm, EPS))
    q, scale = norm_float8(hidden, delta, norm, EPS)
    assert torch.equal(scale, wanted_scale)
    assert torch.equal(q.view(torch.uint8), wanted.view(torch.uint8))
    gate_up = random(count, 24576, dtype=torch.bfloat16)
    wanted, wanted_scale = quantise_rows(gpu.silu_mul(gate_up))
    q, scale = silu_mul_float8(gate_up)
    assert torch.equal(scale, wanted_scale)
    assert torch.equal(q.view(torch.uint8), wanted.view(torch.uint8))
