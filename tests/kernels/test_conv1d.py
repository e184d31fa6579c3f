"""The convolution's Triton kernel against its definition, on a GPU or in the interpreter; a
transposed convolution as a plain one."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.kernels import conv1d as plain
from mosslive.kernels.arithmetic import arithmetic
from mosslive.kernels.conv1d import channels_together, join, taps_together, upsampling_as_conv1d
from mosslive.kernels.gpu import conv1d as triton_conv1d
from mosslive.kernels.gpu.conv1d import Tiles

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMITS = {torch.float32: 2e-6, torch.float16: 2e-3}
if DEVICE == "cuda":  # the interpreter multiplies the bits of bfloat16 as if they were integers
    LIMITS[torch.bfloat16] = 2e-2
SMALL = Tiles(rows=16, outputs=16, depth=16, warps=1, stages=2)
PARTS = SMALL._replace(parts=3)


@pytest.fixture(autouse=True)
def float32_as_such() -> Iterator[None]:
    """The definitions on a GPU are cuDNN's, which by default rounds to TF32."""
    with arithmetic("fp32"):
        yield


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.to(DEVICE, dtype)


def signal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return channels_together(random(*shape, seed=seed, dtype=dtype))


def weight(outputs: int, inputs: int, taps: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return taps_together(
        random(outputs, inputs, taps, seed=1, dtype=dtype) / (inputs * taps) ** 0.5
    )


def error(found: Tensor, wanted: Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max())


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize(
    ("inputs", "outputs", "options"),
    [
        (16, 24, {"padding": 1}),  # the depth of a tile is one tap
        (24, 20, {"padding": 6, "dilation": 3, "tiles": SMALL}),  # a tile cuts through taps
        (16, 20, {"padding": 6, "dilation": 3, "tiles": PARTS, "activation": "elu"}),
        (24, 20, {"tiles": PARTS, "scale": 2.0}),  # the last part is shorter
        (5, 3, {"stride": 2}),
        (18, 7, {"padding": 2, "stride": 3, "activation": "elu"}),
        (7, 9, {"activation": "gelu", "scale": 0.5}),
        (8, 9, {"activation": "leaky", "slope": 0.1}),
    ],
)
def test_kernel_equals_the_definition(
    dtype: torch.dtype, inputs: int, outputs: int, options: dict[str, Any]
) -> None:
    """Any place of the taps, any channels, ends of zeros, and what comes after the product."""
    x, w, bias = signal(2, inputs, 37, dtype=dtype), weight(outputs, inputs, 5, dtype), None
    found = triton_conv1d.conv1d(x, w, bias, **options)
    options = {name: value for name, value in options.items() if name != "tiles"}
    wanted = plain.conv1d(x.double(), w.double(), bias, **options)
    assert error(found, wanted) < LIMITS[dtype]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_addends(count: int) -> None:
    """Up to three sums, each with its own distance between batch rows, as windows have it."""
    x, w, bias = signal(3, 6, 20), weight(10, 6, 3), random(10, seed=2)
    addends = [signal(3, 10, 25 + k, seed=3 + k)[..., 2 : 2 + 20] for k in range(count)]
    options: dict[str, Any] = {"padding": 1, "addends": addends, "scale": 1 / 3}
    assert (
        error(triton_conv1d.conv1d(x, w, bias, **options), plain.conv1d(x, w, bias, **options))
        < 2e-6
    )


def test_snakes() -> None:
    """The snake alone, and together with the sum it is computed from."""
    x, w, bias = signal(1, 8, 19), weight(12, 8, 3), random(12, seed=2)
    alpha, addend = random(12, seed=3).abs(), signal(1, 12, 19, seed=4)
    alone = triton_conv1d.conv1d(x, w, bias, padding=1, activation="snake", alpha=alpha)
    assert error(alone, plain.conv1d(x, w, bias, padding=1, activation="snake", alpha=alpha)) < 2e-6
    both = triton_conv1d.conv1d_snake(x, w, bias, alpha, padding=1, addends=[addend])
    wanted = plain.conv1d_snake(x, w, bias, alpha, padding=1, addends=[addend])
    assert max(error(a, b) for a, b in zip(both, wanted, strict=True)) < 2e-6


def test_a_window_in_time_needs_no_copy() -> None:
    """Rows of a batch that lie further apart than they are long, and do not start at the start."""
    long, w = signal(2, 6, 50), weight(4, 6, 3)
    assert (
        error(
            triton_conv1d.conv1d(long[..., 7:31], w, None), plain.conv1d(long[..., 7:31], w, None)
        )
        < 2e-6
    )


@pytest.mark.parametrize(
    ("rate", "kernel"), [(2, 4), (4, 8), (3, 5), (2, 2), (2, 8), (8, 16), (5, 11)]
)
def test_upsampling_as_a_plain_convolution(rate: int, kernel: int) -> None:
    """Channels of the plain one, put one after the other, are the samples of the transposed one."""
    crop = (kernel - rate) // 2
    x, w, bias = random(2, 3, 7), random(3, 4, kernel, seed=1), random(4, seed=2)
    taps = upsampling_as_conv1d(w, rate, crop)
    y = plain.conv1d(x, taps, bias.repeat(rate), padding=taps.shape[2] // 2)  # [B, rate · O, T]
    found = y.transpose(1, 2).reshape(2, -1, 4).transpose(1, 2)
    wanted = F.conv_transpose1d(x, w, bias, stride=rate, padding=crop)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 4])
def test_join_keeps_the_layout(channels: int) -> None:
    """Values as `torch.cat` gives them; adjacent channels stay adjacent."""
    x, y = signal(2, channels, 5), signal(2, channels, 3, seed=1)
    assert torch.equal(join((x, y)), torch.cat((x, y), -1))
    assert join((x, y)).stride(1) == 1 or channels == 1
    assert join((x.contiguous(), y.contiguous())).is_contiguous()


def test_wrong_layouts_are_refused() -> None:
    """A launcher checks the strides that its kernel relies on, and reports what is wrong."""
    x, w = signal(1, 4, 9), weight(3, 4, 3)
    with pytest.raises(ValueError, match="adjacent"):
        triton_conv1d.conv1d(x.contiguous(), w, None)
    with pytest.raises(ValueError, match="weight"):
        triton_conv1d.conv1d(x, w.contiguous(), None)
    with pytest.raises(ValueError, match="one dtype"):
        triton_conv1d.conv1d(x.half(), w, None)
    with pytest.raises(ValueError, match="addends"):
        triton_conv1d.conv1d(x, w, None, addends=[x])
    with pytest.raises(ValueError, match="at least"):
        triton_conv1d.conv1d(x, w, None, dilation=9)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("channels", "times"), [(768, 40), (384, 1376), (96, 6000), (24, 25000)])
def test_sizes_of_a_vocoder(dtype: torch.dtype, channels: int, times: int) -> None:
    """Every kind of tiles the table chooses from, three sums, against double precision."""
    x = signal(2, channels, times, dtype=dtype)
    addends = [signal(2, channels, times, seed=k, dtype=dtype) for k in (3, 4, 5)]
    w, bias = weight(channels, channels, 11, dtype), random(channels, seed=2, dtype=dtype)
    options: dict[str, Any] = {"dilation": 5, "padding": 25, "scale": 1 / 3}
    found = triton_conv1d.conv1d(x, w, bias, addends=addends, **options)
    wide = [addend.double() for addend in addends]
    wanted = plain.conv1d(x.double(), w.double(), bias.double(), addends=wide, **options)
    assert error(found, wanted) < LIMITS[dtype]
