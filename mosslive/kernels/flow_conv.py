"""A causal convolution of three taps on the rows of a chunk step; its state is in pages.

Two operations. `conv_rows` puts the two columns before each chunk, which the previous page holds,
in front of the chunk's own, and stores the chunk's last two in its page. A tap's shift is then only
an address, so that `conv_product` is one product over three neighbouring rows. Norm, Mish and the
time vector of a ResNet block are applied on the way. Invariant: before a stream's first column the
convolution sees zeros, not an activation of zeros.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mosslive.kernels.flow_chunks import Chunks
from mosslive.kernels.flow_layers import norm_mish_add, product

TAPS = 3
TAIL = TAPS - 1


class Activation(NamedTuple):
    """mish(norm(x) · scale + shift) + time, [C] float32 each."""

    scale: Tensor
    shift: Tensor
    time: Tensor


def conv_rows(
    x: Tensor,
    tails: Tensor,
    offset: int,
    chunks: Chunks,
    dtype: torch.dtype,
    activation: Activation | None = None,
) -> Tensor:
    """x [halves · B · T, C] float32 (may be a slice of rows); tails [P, halves, V] float32, where
    this convolution's are 2 · C from `offset` on → [halves · B, 2 + T, C] of `dtype`."""
    channels, halves = x.shape[1], tails.shape[1]
    if activation is not None:
        x = norm_mish_add(x, activation.scale, activation.shift, activation.time.expand_as(x))
    new = x.reshape(halves, len(chunks.table), -1, channels)
    span = slice(offset, offset + TAIL * channels)
    old = tails[chunks.before, :, span].reshape(-1, halves, TAIL, channels).transpose(0, 1)
    whole = torch.cat((old, new), 2)  # [halves, B, 2 + T, C]
    tails[chunks.own, :, span] = whole[:, :, -TAIL:].transpose(0, 1).flatten(2)
    return whole.flatten(0, 1).to(dtype)


def conv_product(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """rows [R, 2 + T, C], weight [N, 3 · C] tap by tap, bias [N] float32 → [R · T, N] float32."""
    channels = rows.shape[2]
    neighbours = rows.unfold(1, TAPS, 1).transpose(2, 3)  # [R, T, 3, C]
    return product(neighbours.reshape(-1, TAPS * channels), weight) + bias
