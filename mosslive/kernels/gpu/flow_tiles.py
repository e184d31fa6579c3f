"""Shared by the flow's Triton kernels: tile sizes, checks, and how products are computed."""

import torch
import triton
import triton.language as tl
from torch import Tensor

LEAST_TILE = 16  # of any side of a tensor-core product


def tile(size: int) -> int:
    """The smallest tile that holds `size`."""
    return max(LEAST_TILE, int(triton.next_power_of_2(size)))


def input_precision(weight: Tensor) -> str:
    """float32 as three TF32 products, which is float32 up to its own rounding; as one TF32 product
    only if PyTorch is set so (`kernels.arithmetic`). Half precision as it is."""
    if weight.dtype != torch.float32:
        return "ieee"
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def require(name: str, tensor: Tensor, shape: tuple[int, ...], *dtypes: torch.dtype) -> None:
    """Contiguous, of this shape and one of these types."""
    if tuple(tensor.shape) != shape or tensor.dtype not in dtypes or not tensor.is_contiguous():
        raise ValueError(
            f"{name}: {list(tensor.shape)} {tensor.dtype}, strides {tensor.stride()}; needed: "
            f"{list(shape)}, contiguous, {' or '.join(map(str, dtypes))}"
        )


@triton.jit
def row_norm(x, inside, size, eps):  # type: ignore[no-untyped-def]
    """x [rows, columns] float32 → mean and 1/σ over the `size` columns inside, [rows] each; zeros
    are outside."""
    mean = tl.sum(x, 1) / size
    centred = tl.where(inside, x - mean[:, None], 0.0)
    return mean, tl.rsqrt(tl.sum(centred * centred, 1) / size + eps)


@triton.jit
def mish(x):  # type: ignore[no-untyped-def]
    """x · tanh(ln(1 + eˣ)), written with one exponential that cannot overflow."""
    e = tl.exp(tl.minimum(x, 20.0))
    n = e * (e + 2.0)
    return tl.where(x > 20.0, x, x * n / (n + 2.0))
