"""Numbers of the host on a device, without waiting for what the device is doing.

An ordinary copy to a GPU waits until the device has come to it, and with it the host, which could
have prepared what comes next.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def upload(values: Sequence[object], device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor of (nested) numbers; later work on the current stream sees it."""
    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    # Pinned memory that a copy still reads is not given to another: PyTorch's cache sees to that.
    return torch.tensor(values, dtype=dtype, pin_memory=True).to(device, non_blocking=True)
