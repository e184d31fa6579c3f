"""Triton version of `mosslive.kernels.flow_euler`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.flow_tiles import require
from mosslive.kernels.gpu.overlap import after_previous, overlap

_BLOCK = 256


@triton.jit(do_not_specialize=["size"])
def _euler(  # type: ignore[no-untyped-def]
    x_at,
    velocity_at,
    inputs_at,
    size,
    bands,
    stride,
    width,
    guidance,
    block: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    after_previous(OVERLAP)
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < size
    conditional = tl.load(velocity_at + place, mask=inside)
    unconditional = tl.load(velocity_at + size + place, mask=inside)
    x = tl.load(x_at + place, mask=inside)
    x += width * ((1 + guidance) * conditional - guidance * unconditional)
    tl.store(x_at + place, x, mask=inside)
    target = place // bands * stride + place % bands
    tl.store(inputs_at + target, x, mask=inside)
    tl.store(inputs_at + size // bands * stride + target, x, mask=inside)


def euler_(x: Tensor, velocity: Tensor, inputs: Tensor, width: float, guidance: float) -> None:
    rows, bands = x.shape
    require("x", x, (rows, bands), torch.float32)
    require("velocity", velocity, (2 * rows, bands), torch.float32)
    require("inputs", inputs, (2 * rows, inputs.shape[1]), torch.float32)
    _euler[(triton.cdiv(x.numel(), _BLOCK),)](
        x,
        velocity,
        inputs,
        x.numel(),
        bands,
        inputs.shape[1],
        width,
        guidance,
        block=_BLOCK,
        **overlap(x),
    )
