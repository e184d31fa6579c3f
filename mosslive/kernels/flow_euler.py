"""One Euler step with classifier-free guidance on the rows of a chunk step."""

from torch import Tensor


def euler_(x: Tensor, velocity: Tensor, inputs: Tensor, width: float, guidance: float) -> None:
    """x += width · ((1 + guidance) · conditional - guidance · unconditional); x is also written to
    the first columns of both halves of the next step's input. x and inputs change in place.

    All float32: x [B · T, bands], velocity [2 · B · T, bands]: conditional, then unconditional;
    inputs [2 · B · T, I].
    """
    rows, bands = x.shape
    conditional, unconditional = velocity.chunk(2)
    x += width * ((1 + guidance) * conditional - guidance * unconditional)
    inputs.view(2, rows, -1)[:, :, :bands] = x
