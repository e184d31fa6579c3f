"""The flow's Triton kernels against their PyTorch definitions, on a GPU or in the interpreter."""

import pytest
import torch
from torch import Tensor

from mosslive.kernels.dispatch import TORCH, triton_kernels
from mosslive.kernels.flow_chunks import Chunks
from mosslive.kernels.flow_conv import Activation

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Triton's interpreter has no bfloat16 products of its own.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if DEVICE == "cuda" else [])
LIMITS = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
HALVES, HEADS, COLUMNS, WIDTH, PAGES = 2, 2, 6, 12, 9
STREAMS = 3


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(1)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(DEVICE, dtype)


def chunks(held: int = COLUMNS) -> Chunks:
    """Streams at their first, third and fourth chunk, that share an early page."""
    table = torch.tensor([[8, 0, 0, 0], [1, 5, 2, 0], [1, 3, 4, 7]], dtype=torch.int32)
    index = torch.tensor([0, 2, 3], dtype=torch.int32)
    there = torch.tensor([COLUMNS, held, COLUMNS], dtype=torch.int32)
    return Chunks(table.to(DEVICE), index.to(DEVICE), there.to(DEVICE), reach=4)


def pages(dtype: torch.dtype) -> Tensor:
    made = normal(2, PAGES, HALVES, HEADS, COLUMNS, WIDTH, dtype=dtype)
    made[:, 0] = 0
    return made


def close(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    scale = float(wanted.float().abs().max())
    torch.testing.assert_close(
        found.float(), wanted.float(), rtol=0, atol=LIMITS[dtype] * max(1.0, scale)
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "depth", "outputs"), [(5, 7, 19), (36, 24, 40), (200, 40, 70)])
def test_products(dtype: torch.dtype, rows: int, depth: int, outputs: int) -> None:
    """Norm, product, GELU; and product added to the residual: odd sizes, several tile forms."""
    ops, weight = triton_kernels(), normal(outputs, depth, dtype=dtype)
    bias, x = normal(outputs), 3 * normal(rows, depth) + 1
    wanted = TORCH.norm_linear_gelu(x, weight, bias)
    close(ops.norm_linear_gelu(x, weight, bias), wanted, dtype)
    h, residual = normal(rows, depth, dtype=dtype), normal(rows, outputs)
    found, wanted = residual.clone(), residual.clone()
    TORCH.add_linear_(wanted, h, weight, bias)
    ops.add_linear_(found, h, weight, bias)
    close(found, wanted, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_and_values_go_to_the_streams_own_pages(dtype: torch.dtype) -> None:
    """Queries come back, keys and values lie in the pages of the chunks, and nowhere else."""
    ops, depth = triton_kernels(), 20
    x, place = 2 * normal(HALVES * STREAMS * COLUMNS, depth), chunks()
    weight, bias = normal(3 * HEADS * WIDTH, depth, dtype=dtype), normal(3 * HEADS * WIDTH)
    wanted_pages, found_pages = (pages(dtype) for _ in range(2))
    found_pages.copy_(wanted_pages)
    before = wanted_pages.clone()
    wanted = TORCH.norm_qkv(x, weight, bias, wanted_pages, place)
    found = ops.norm_qkv(x, weight, bias, found_pages, place)
    close(found, wanted, dtype)
    close(found_pages, wanted_pages, dtype)
    written = [
        page for page in range(PAGES) if not torch.equal(before[:, page], found_pages[:, page])
    ]
    assert written == [2, 7, 8]


@pytest.mark.parametrize(
    ("dtype", "window", "held"),
    [(dtype, None, COLUMNS) for dtype in DTYPES]
    + [(torch.float32, 0, 1), (torch.float32, 7, COLUMNS)],
)
def test_attention(dtype: torch.dtype, window: int | None, held: int) -> None:
    """All earlier chunks or a window of them, and the chunk itself as far as it is there."""
    place, cells = chunks(held), pages(dtype)
    q = normal(HALVES * STREAMS, COLUMNS, HEADS, WIDTH, dtype=dtype)
    found = triton_kernels().chunk_attention(q, cells, place, window)
    close(found, TORCH.chunk_attention(q, cells, place, window), dtype)


def test_attention_with_positions() -> None:
    """Scores with a part that depends on where keys stand, wider than a head."""
    place, extent = chunks(4), 26
    cells = normal(2, PAGES, 1, HEADS, COLUMNS, WIDTH)
    q = normal(STREAMS, COLUMNS, HEADS, WIDTH)
    rotated, places = 0.3 * normal(STREAMS, COLUMNS, HEADS, extent), normal(23, extent)
    found = triton_kernels().chunk_attention(q, cells, place, None, rotated, places)
    wanted = TORCH.chunk_attention(q, cells, place, None, rotated, places)
    close(found, wanted, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activated", [False, True])
@pytest.mark.parametrize("channels", [5, 33])
def test_convolution(dtype: torch.dtype, activated: bool, channels: int) -> None:
    """Three taps across the chunk's border; zeros, not activated zeros, before the first column;
    the last two rows are kept in the stream's own page."""
    ops, rows, outputs, offset = triton_kernels(), HALVES * STREAMS * COLUMNS, 21, 3
    x = (2 * normal(rows, channels + 4))[:, 1 : channels + 1]  # rows of a wider tensor
    vectors = Activation(normal(channels), normal(channels), normal(channels))
    activation = vectors if activated else None
    tails = normal(PAGES, HALVES, offset + 2 * channels + 1)
    tails[0] = 0
    found_tails, wanted_tails = tails.clone(), tails.clone()
    wanted = TORCH.conv_rows(x, wanted_tails, offset, chunks(), dtype, activation)
    found = ops.conv_rows(x, found_tails, offset, chunks(), dtype, activation)
    close(found, wanted, dtype)
    close(found_tails, wanted_tails, torch.float32)
    assert not torch.equal(found_tails, tails)
    assert not found.view(HALVES, STREAMS, -1, channels)[:, 0, :2].any()
    weight, bias = normal(outputs, 3 * channels, dtype=dtype), normal(outputs)
    product = ops.conv_product(wanted, weight, bias)
    close(product, TORCH.conv_product(wanted, weight, bias), dtype)
    taps = weight.float().view(outputs, 3, channels).transpose(1, 2)
    convolved = torch.conv1d(wanted.float().mT.cpu(), taps.cpu(), bias.cpu())
    close(product.cpu(), convolved.mT.reshape(rows, outputs), dtype)


@pytest.mark.parametrize("added", [False, True])
def test_norm_mish(added: bool) -> None:
    """Also where Mish is steep or nearly the identity."""
    y, other = 30 * normal(7, 11), normal(7, 25)[:, 3:14] if added else None
    scale, shift = 20 * normal(11), normal(11)
    wanted = TORCH.norm_mish_add(y, scale, shift, other)
    close(triton_kernels().norm_mish_add(y, scale, shift, other), wanted, torch.float32)


def test_euler() -> None:
    """Guidance, the step, and the new frames in both halves of the next input."""
    x, velocity, inputs = normal(9, 5), normal(18, 5), normal(18, 12)
    found, wanted = [(x.clone(), inputs.clone()) for _ in range(2)]
    TORCH.euler_(wanted[0], velocity, wanted[1], 0.125, 0.7)
    triton_kernels().euler_(found[0], velocity, found[1], 0.125, 0.7)
    close(found[0], wanted[0], torch.float32)
    close(found[1], wanted[1], torch.float32)
    assert torch.equal(found[1][:9, :5], found[1][9:, :5])


def test_wrong_shapes_are_refused() -> None:
    """A launcher checks what its kernel relies on."""
    ops = triton_kernels()
    with pytest.raises(ValueError, match="weight"):
        ops.norm_linear_gelu(normal(4, 6), normal(8, 12)[:, ::2], normal(8))
    with pytest.raises(ValueError, match="offset"):
        ops.conv_rows(normal(36, 4), normal(PAGES, 2, 9), 3, chunks(), torch.float32)
