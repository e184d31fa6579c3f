"""Published tensors → an engine's tensors: fuses matrices with the same input, quantises to fp8.

Makes one tensor at a time, so a build needs little memory whatever the size of the model.
"""

import torch
from torch import Tensor

from mosslive.checkpoint import Checkpoint
from mosslive.checkpoint.engine_layout import (
    BaseDtype,
    Fused,
    Precision,
    fused_tensors,
    scale_name,
)
from mosslive.checkpoint.layout import expected_tensors
from mosslive.kernels import quantise_rows

TORCH_DTYPES: dict[BaseDtype, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}


class FusedTensors:
    """Makes the tensors of `stored_tensors` by name, on the CPU. Quantises on `device`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        base: BaseDtype,
        precision: dict[str, Precision],
        device: torch.device,
    ) -> None:
        self._checkpoint = checkpoint
        self._base = base
        self._precision = precision
        self._device = device
        self._fused = fused_tensors(checkpoint.config)
        self._shapes = expected_tensors(checkpoint.config)
        self._scales: dict[str, Tensor] = {}  # made with a matrix, requested right after it

    def make(self, name: str) -> Tensor:
        if name in self._scales:
            return self._scales.pop(name)
        tensor = self._stack(self._fused[name])
        if self._precision.get(name) != "fp8":
            return tensor
        quantised, scale = quantise_rows(tensor.to(self._device))
        self._scales[scale_name(name)] = scale.cpu()
        return quantised.cpu()

    def _stack(self, fused: Fused) -> Tensor:
        target = torch.empty(fused.shape, dtype=TORCH_DTYPES[self._base])
        rows = target.view(-1, fused.shape[-1])
        first = 0
        for part in fused.parts:
            shape = self._shapes[part]
            count = shape[0] if len(shape) == 2 else 1  # a vector is one row
            self._checkpoint.copy_into(rows[first : first + count].view(shape), part)
            first += count
        assert first == len(rows), fused
        return target
