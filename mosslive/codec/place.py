"""What a caller may choose when a network is loaded: where it computes, and in which numbers."""

import torch

from mosslive.config import refuse

COMPUTE = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def check_device(name: str) -> torch.device:
    """Tries it, because a device that PyTorch knows by name may not be there."""
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise refuse("device", name, f"cpu, or one that PyTorch finds ({reason})") from None
