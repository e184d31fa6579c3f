"""Root-mean-square norm: y = x / sqrt(mean(x²) + eps) · weight."""

from functools import lru_cache

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., D], weight [D] or [H, D] for x [..., H, D] → same shape and dtype as x.

    Normalised in float32, rounded to x's dtype, and only then multiplied by the weight: the order
    the published model was trained and measured with. Keeping float32 through the product gives
    other bf16 values.
    """
    wide = x.float()
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    # mean(x²) + eps in one operation: on a CPU the number of small operations counts.
    mean_square = torch.addcmul(_constant(eps, x.device), length, length, value=1 / x.shape[-1])
    return (wide * mean_square.rsqrt_()).to(x.dtype) * weight


@lru_cache(maxsize=8)
def _constant(value: float, device: torch.device) -> Tensor:
    return torch.tensor(value, device=device)
