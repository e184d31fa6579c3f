"""A linear layer for a few rows, with what follows it: bias, a residual sum or a GELU.

Knows no layer. Invariant: the product of `F.linear` in the dtype of the rows, with no TF32 for
float32; another implementation may differ by the order of summing and may round less often.
"""

from torch import Tensor
from torch.nn import functional as F


def rows_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    residual: Tensor | None = None,
    gelu: bool = False,
) -> Tensor:
    """x [B, t, I], weight [O, I], bias [O], residual [B, t, O] → [B, t, O]; GELU (exact) last. The
    residual may be float32 where the product is not; then so is the result."""
    y = F.linear(x, weight, bias)
    y = y if residual is None else residual + y
    return F.gelu(y) if gelu else y
