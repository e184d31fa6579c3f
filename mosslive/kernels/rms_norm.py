"""Root-mean-square norm: y = x / sqrt(mean(x²) + eps) · weight."""

from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., D], weight [D] or [H, D] for x [..., H, D] → same shape and dtype as x.

    Normalised in float32, rounded to x's dtype, and only then multiplied by the weight: the order
    the published model was trained and measured with. Keeping float32 through the product gives
    other bf16 values.
    """
    wide = x.float()
    mean_square = (wide * wide).sum(-1, keepdim=True).mul_(1 / x.shape[-1])
    return (wide * mean_square.add_(eps).rsqrt_()).to(x.dtype) * weight
