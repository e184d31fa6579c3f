"""What a caller chooses when a network is loaded: the device and the type of its numbers."""

import torch

from mosslive.config import refuse

COMPUTE = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def check_device(name: str) -> torch.device:
    """Allocates on the device, because PyTorch also knows the names of absent devices."""
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise refuse("device", name, f"cpu, or one that PyTorch finds ({reason})") from None
