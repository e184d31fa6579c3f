"""Triton version of `conv_rows` in `kernels.flow_conv`; the product is in `flow_layers`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.flow_chunks import Chunks
from mosslive.kernels.flow_conv import TAIL, Activation
from mosslive.kernels.flow_layers import EPS
from mosslive.kernels.gpu.flow_tiles import mish, require, row_norm, tile
from mosslive.kernels.gpu.overlap import after_previous, overlap


@triton.jit(do_not_specialize=["streams"])
def _rows(  # type: ignore[no-untyped-def]
    x_at,
    tails_at,
    out_at,
    scale_at,
    shift_at,
    time_at,
    table_at,
    index_at,
    streams,
    x_stride,
    table_stride,
    tail_stride,
    eps,
    columns: tl.constexpr,
    channels: tl.constexpr,
    block: tl.constexpr,
    halves: tl.constexpr,
    tail: tl.constexpr,
    activate: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """A program has one column of one stream's half, of the chunk or of the two before it."""
    row, column = tl.program_id(0), tl.program_id(1)
    stream, half, t = row % streams, row // streams, column - tail
    c = tl.arange(0, block)
    inside = c < channels
    after_previous(OVERLAP)
    index = tl.load(index_at + stream)
    entry = table_at + stream * table_stride + index
    out = out_at + (row * (columns + tail) + column) * channels + c
    if t < 0:
        earlier = tl.load(entry - 1, mask=index > 0, other=0).to(tl.int64)
        old_place = (earlier * halves + half) * tail_stride + column * channels
        old = tl.load(tails_at + old_place + c, mask=inside, other=0.0)
        tl.store(out, old.to(out_at.dtype.element_ty), mask=inside)
    else:
        x = tl.load(x_at + (row * columns + t) * x_stride + c, mask=inside, other=0.0)
        if activate:
            mean, rstd = row_norm(x[None, :], inside[None, :], channels, eps)
            scale = tl.load(scale_at + c, mask=inside, other=0.0)
            shift = tl.load(shift_at + c, mask=inside, other=0.0)
            normed = (x[None, :] - mean[:, None]) * rstd[:, None] * scale[None, :] + shift[None, :]
            time = tl.load(time_at + c, mask=inside, other=0.0)
            x = tl.reshape(mish(normed), (block,)) + time
        tl.store(out, x.to(out_at.dtype.element_ty), mask=inside)
        if t >= columns - tail:
            page = tl.load(entry).to(tl.int64)
            place = (page * halves + half) * tail_stride + (t - (columns - tail)) * channels
            tl.store(tails_at + place + c, x, mask=inside)


def conv_rows(
    x: Tensor,
    tails: Tensor,
    offset: int,
    chunks: Chunks,
    dtype: torch.dtype,
    activation: Activation | None = None,
) -> Tensor:
    rows, channels = x.shape
    streams, halves = len(chunks.table), tails.shape[1]
    columns = rows // (halves * streams)
    if x.dtype != torch.float32 or x.stride(1) != 1 or rows != halves * streams * columns:
        raise ValueError(f"x: {list(x.shape)} {x.dtype}; needed: rows of {halves} · {streams} · T")
    if columns < TAIL:
        raise ValueError(f"{columns} columns in a chunk; allowed: {TAIL} or more")
    require("tails", tails, tuple(tails.shape), torch.float32)
    require("table", chunks.table, tuple(chunks.table.shape), torch.int32)
    require("index", chunks.index, (streams,), torch.int32)
    if not 0 <= offset <= tails.shape[2] - TAIL * channels:
        raise ValueError(f"offset {offset} in tails of {tails.shape[2]}")
    vectors = activation or (x, x, x)  # never read without an activation
    if activation is not None:
        for name, vector in activation._asdict().items():
            require(name, vector, (channels,), torch.float32)
    out = torch.empty(halves * streams, columns + TAIL, channels, dtype=dtype, device=x.device)
    _rows[(halves * streams, columns + TAIL)](
        x,
        tails[0, 0, offset:],
        out,
        *vectors,
        chunks.table,
        chunks.index,
        streams,
        x.stride(0),
        chunks.table.stride(0),
        tails.stride(1),
        EPS,
        columns=columns,
        channels=channels,
        block=tile(channels),
        halves=halves,
        tail=TAIL,
        activate=activation is not None,
        num_warps=1,
        **overlap(x),
    )
    return out
