"""The gate of the feed-forward: silu(gate) · up."""

from torch import Tensor
from torch.nn import functional as F


def silu_mul(gate_up: Tensor) -> Tensor:
    """gate_up [..., 2·I], gate first → [..., I]. silu is rounded to the dtype first."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up
