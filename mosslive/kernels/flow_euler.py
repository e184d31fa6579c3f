"""One Euler step with guidance on the rows of a chunk step."""

from torch import Tensor


def euler_(x: Tensor, velocity: Tensor, inputs: Tensor, width: float, guidance: float) -> None:
    """x += width · ((1 + guidance) · told - guidance · untold), and x to the first columns of both
    halves of the next step's input. All float32, all changed in place but the velocity.

    x [B · T, bands], velocity [2 · B · T, bands]: told, then untold; inputs [2 · B · T, I].
    """
    rows, bands = x.shape
    told, untold = velocity.chunk(2)
    x += width * ((1 + guidance) * told - guidance * untold)
    inputs.view(2, rows, -1)[:, :, :bands] = x
