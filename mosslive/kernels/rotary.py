"""Rotary position embedding (RoPE), half-split form: pairs are (x[i], x[i + D/2])."""

import torch
from torch import Tensor


class RotaryTable:
    """cos and sin of every position, in the model's dtype.

    Frequencies and angles are float32 and computed on the CPU whatever the device: a GPU's own
    power function differs in the last bit, which changes a bf16 sine from position 459 on.
    """

    def __init__(
        self, theta: float, head_dim: int, positions: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
        frequencies = 1.0 / (theta**exponents)  # [D/2]
        angles = torch.arange(positions).float()[:, None] * frequencies  # [P, D/2]
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        # Full-width tables with the sign in the sine: a rotation is then two products and a sum.
        self.cos = torch.cat((cos, cos), dim=1).to(device)  # [P, D]
        self.signed_sin = torch.cat((-sin, sin), dim=1).to(device)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions [T] → cos, signed sin [T, 1, D], ready to multiply [T, H, D]."""
        return (
            self.cos.index_select(0, positions)[:, None],
            self.signed_sin.index_select(0, positions)[:, None],
        )


def rotate(x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """x [T, H, D] rotated by the angles of its positions; arithmetic in x's dtype."""
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * signed_sin
