"""The products of a transformer block on the rows of a chunk step, fused with their neighbours.

The residual stream is float32; products take inputs in the weights' dtype and sum in float32. Norms
have no scale and shift of their own: these are folded into the product that follows. Knows nothing
of the order of the layers.
"""

from torch import Tensor
from torch.nn import functional as F

from mosslive.kernels.flow_chunks import Chunks

EPS = 1e-5


def norm_linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """gelu(norm(x) · weightᵀ + bias): x [M, K] float32, weight [N, K], bias [N] float32 → [M, N] in
    the weight's type."""
    return F.gelu(product(_norm(x), weight) + bias).to(weight.dtype)


def add_linear_(x: Tensor, h: Tensor, weight: Tensor, bias: Tensor) -> None:
    """x += h · weightᵀ + bias, in place: x [M, N] float32, h [M, K] in the weight's type."""
    x += product(h, weight) + bias


def norm_qkv(x: Tensor, weight: Tensor, bias: Tensor, pages: Tensor, chunks: Chunks) -> Tensor:
    """norm(x) · weightᵀ + bias; returns the queries, writes keys and values to the chunks' pages.

    x [halves · B · T, K] float32, weight [3 · H · D, K]: queries, keys, values; pages
    [2, P, halves, H, T, D] → queries [halves · B, T, H, D].
    """
    _, _, halves, heads, columns, width = pages.shape
    whole = (product(_norm(x), weight) + bias).to(pages.dtype)
    parts = whole.view(halves, -1, columns, 3, heads, width)
    keys = parts[:, :, :, 1:].permute(3, 1, 0, 4, 2, 5)  # [2, B, halves, H, T, D]
    pages[:, chunks.own] = keys
    return parts[:, :, :, 0].reshape(-1, columns, heads, width)


def norm_mish_add(y: Tensor, scale: Tensor, shift: Tensor, other: Tensor | None) -> Tensor:
    """mish(norm(y) · scale + shift) + other: [M, C] float32; `other` may be a slice of rows."""
    activated = F.mish(F.layer_norm(y, y.shape[1:], scale, shift, EPS))
    return activated if other is None else activated + other


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[1:], eps=EPS)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x · weightᵀ of rounded inputs, with float32 sums."""
    return x.to(weight.dtype).float() @ weight.float().T
