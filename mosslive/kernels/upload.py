"""Copies numbers from the host to a device without waiting for the device.

An ordinary copy to a GPU blocks the host until the device reaches it; the host could prepare the
next work instead.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def upload(values: Sequence[object], device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor of (nested) numbers; later work on the current stream sees it."""
    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    # PyTorch's cache does not reuse pinned memory that a copy still reads.
    return torch.tensor(values, dtype=dtype, pin_memory=True).to(device, non_blocking=True)
