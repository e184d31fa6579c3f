"""Triton version of `mosslive.kernels.flow_layers`, and of the product in `flow_conv`.

One kernel for all products: rows in tiles, each program a tile of columns. With few rows every
program computes the norm again, because a launch costs more than reading 256 numbers twice; with
many rows the norm is a kernel of its own. Where the whole depth fits into a tile, weights are
fetched while the previous kernel still runs.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.flow_chunks import Chunks
from mosslive.kernels.flow_conv import TAIL, TAPS
from mosslive.kernels.flow_layers import EPS
from mosslive.kernels.gpu.flow_tiles import input_precision, mish, require, row_norm, tile
from mosslive.kernels.gpu.overlap import after_previous, overlap

_WEIGHTS = (torch.float32, torch.bfloat16, torch.float16)
_FEW_ROWS = 192


class Tiles(NamedTuple):
    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


def product_tiles(rows: int, depth: int, dtype: torch.dtype) -> Tiles:
    """Measured on an H200: many small tiles while the device is not full, since then only the
    latency of one program counts."""
    halves = dtype != torch.float32
    if rows <= _FEW_ROWS:
        if halves or depth <= 256:
            return Tiles(16, 32, min(256, tile(depth)), 4, 3 if halves else 2)
        return Tiles(16, 32, 128, 4, 3)
    if rows <= 768:
        return Tiles(64, 64, 64, 4, 4) if halves else Tiles(32, 32, 64, 4, 3)
    return Tiles(64, 128, 64, 4, 3) if halves else Tiles(64, 64, 32, 4, 3)


@triton.jit(do_not_specialize=["rows", "streams"])
def _product(  # type: ignore[no-untyped-def]
    x_at,
    weight_at,
    bias_at,
    y_at,
    pages_at,
    table_at,
    index_at,
    rows,
    streams,
    table_stride,
    value_stride,
    eps,
    outputs: tl.constexpr,
    depth: tl.constexpr,
    halves: tl.constexpr,
    heads: tl.constexpr,
    columns: tl.constexpr,
    width: tl.constexpr,
    taps: tl.constexpr,
    norm: tl.constexpr,
    gelu: tl.constexpr,
    add: tl.constexpr,
    paged: tl.constexpr,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
    whole_k: tl.constexpr,
    precision: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """y = act(norm?(x) · weightᵀ + bias), or added to y, or split into queries and pages."""
    m = tl.program_id(1) * tile_m + tl.arange(0, tile_m)
    n = tl.program_id(0) * tile_n + tl.arange(0, tile_n)
    row, column = m < rows, n < outputs
    if taps > 1:  # neighbouring rows of a chunk, which has two more rows than results
        x_row = x_at + (m // columns * (columns + taps - 1) + m % columns) * (depth // taps)
    else:
        x_row = x_at + m * depth
    all_k = tl.arange(0, whole_k)
    there = row[:, None] & (all_k < depth)[None, :]
    bias = tl.load(bias_at + n, mask=column, other=0.0)
    if tile_k == whole_k:
        weight = tl.load(
            weight_at + n[None, :] * depth + all_k[:, None],
            mask=column[None, :] & (all_k < depth)[:, None],
            other=0.0,
        )
        after_previous(OVERLAP)
        x = tl.load(x_row[:, None] + all_k[None, :], mask=there, other=0.0)
        if norm:
            mean, rstd = row_norm(x, there, depth, eps)
            x = tl.where(there, (x - mean[:, None]) * rstd[:, None], 0.0)
        acc = tl.dot(x.to(weight.dtype), weight, input_precision=precision)
    else:
        after_previous(OVERLAP)
        if norm:
            whole = tl.load(x_row[:, None] + all_k[None, :], mask=there, other=0.0)
            mean, rstd = row_norm(whole, there, depth, eps)
        acc = tl.zeros((tile_m, tile_n), tl.float32)
        for start in range(0, depth, tile_k):
            k = start + tl.arange(0, tile_k)
            w = tl.load(
                weight_at + n[None, :] * depth + k[:, None],
                mask=column[None, :] & (k < depth)[:, None],
                other=0.0,
            )
            inside = row[:, None] & (k < depth)[None, :]
            part_x = tl.load(x_row[:, None] + k[None, :], mask=inside, other=0.0)
            if norm:
                part_x = tl.where(inside, (part_x - mean[:, None]) * rstd[:, None], 0.0)
            acc = tl.dot(part_x.to(w.dtype), w, acc, input_precision=precision)
    acc += bias[None, :]
    if gelu:
        acc = 0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))
    result = row[:, None] & column[None, :]
    if paged:
        # Column n: queries, keys or values; head; channel. Row m: half; stream; column of a chunk.
        inner = heads * width
        part, head, channel = n // inner, n % inner // width, n % width
        place, t = m // columns, m % columns
        stream = place % streams
        index = tl.load(index_at + stream, mask=row, other=0)
        page = tl.load(table_at + stream * table_stride + index, mask=row, other=0).to(tl.int64)
        cell = ((page * halves + place // streams) * heads * columns + t) * width
        target = (part - 1).to(tl.int64) * value_stride + head * columns * width + channel
        kept = result & (part > 0)[None, :]
        pages = pages_at + cell[:, None] + target[None, :]
        tl.store(pages, acc.to(pages_at.dtype.element_ty), mask=kept)
        y = y_at + m[:, None] * inner + n[None, :]
        tl.store(y, acc.to(y_at.dtype.element_ty), mask=result & (part == 0)[None, :])
    else:
        y = y_at + m[:, None] * outputs + n[None, :]
        if add:
            acc += tl.load(y, mask=result, other=0.0)
        tl.store(y, acc.to(y_at.dtype.element_ty), mask=result)


def _launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    y: Tensor,
    pages: Tensor | None = None,
    chunks: Chunks | None = None,
    *,
    norm: bool = False,
    gelu: bool = False,
    add: bool = False,
    taps: int = 1,
) -> None:
    rows = len(y) if taps > 1 else len(x)
    outputs, depth = weight.shape
    require("weight", weight, (outputs, depth), *_WEIGHTS)
    if taps == 1:
        require("x", x, (rows, depth), torch.float32 if norm else weight.dtype)
    require("bias", bias, (outputs,), torch.float32)
    halves = heads = width = streams = value_stride = 1
    columns = x.shape[1] - taps + 1
    table = index = bias  # never read without pages
    if pages is not None and chunks is not None:
        _, count, halves, heads, columns, width = pages.shape
        require("pages", pages, (2, count, halves, heads, columns, width), weight.dtype)
        streams = len(chunks.table)
        table, index, value_stride = chunks.table, chunks.index, pages.stride(0)
        require("table", table, tuple(table.shape), torch.int32)
        require("index", index, (streams,), torch.int32)
        if rows != halves * streams * columns or outputs != 3 * heads * width:
            raise ValueError(f"{rows} rows, {outputs} outputs; pages {list(pages.shape)}")
    if norm and rows > _FEW_ROWS:
        x, norm = _normed(x, weight.dtype), False
    tiles = product_tiles(rows, depth, weight.dtype)
    _product[(triton.cdiv(outputs, tiles.columns), triton.cdiv(rows, tiles.rows))](
        x,
        weight,
        bias,
        y,
        y if pages is None else pages,
        table,
        index,
        rows,
        streams,
        table.stride(0),
        value_stride,
        EPS,
        outputs=outputs,
        depth=depth,
        halves=halves,
        heads=heads,
        columns=columns,
        width=width,
        taps=taps,
        norm=norm,
        gelu=gelu,
        add=add,
        paged=pages is not None,
        tile_m=tiles.rows,
        tile_n=tiles.columns,
        tile_k=tiles.depth,
        whole_k=tile(depth),
        precision=input_precision(weight),
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        **overlap(x),
    )


def norm_linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = torch.empty(len(x), len(weight), dtype=weight.dtype, device=x.device)
    _launch(x, weight, bias, y, norm=True, gelu=True)
    return y


def add_linear_(x: Tensor, h: Tensor, weight: Tensor, bias: Tensor) -> None:
    require("x", x, (len(h), len(weight)), torch.float32)
    _launch(h, weight, bias, x, add=True)


def norm_qkv(x: Tensor, weight: Tensor, bias: Tensor, pages: Tensor, chunks: Chunks) -> Tensor:
    _, _, _, heads, columns, width = pages.shape
    q = torch.empty(len(x) // columns, columns, heads, width, dtype=pages.dtype, device=x.device)
    _launch(x, weight, bias, q, pages, chunks, norm=True)
    return q


def conv_product(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    streams, length, channels = rows.shape
    require("rows", rows, (streams, length, channels), weight.dtype)
    require("weight", weight, (len(weight), TAPS * channels), weight.dtype)
    y = torch.empty(streams * (length - TAIL), len(weight), device=rows.device)
    _launch(rows, weight, bias, y, taps=TAPS)
    return y


@triton.jit
def _norm_mish(  # type: ignore[no-untyped-def]
    y_at,
    scale_at,
    shift_at,
    other_at,
    out_at,
    other_stride,
    eps,
    channels: tl.constexpr,
    block: tl.constexpr,
    activate: tl.constexpr,
    add: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    m, c = tl.program_id(0), tl.arange(0, block)
    inside = c < channels
    after_previous(OVERLAP)
    y = tl.load(y_at + m * channels + c, mask=inside, other=0.0)[None, :]
    mean, rstd = row_norm(y, inside[None, :], channels, eps)
    out = (y - mean[:, None]) * rstd[:, None]
    if activate:
        scale = tl.load(scale_at + c, mask=inside, other=0.0)[None, :]
        shift = tl.load(shift_at + c, mask=inside, other=0.0)[None, :]
        out = mish(out * scale + shift)
    if add:
        out += tl.load(other_at + m * other_stride + c, mask=inside, other=0.0)[None, :]
    place = out_at + m * channels + c[None, :]
    tl.store(place, out.to(out_at.dtype.element_ty), mask=inside[None, :])


def _normed(x: Tensor, dtype: torch.dtype) -> Tensor:
    rows, channels = x.shape
    out = torch.empty(rows, channels, dtype=dtype, device=x.device)
    _norm_mish[(rows,)](
        *(x, x, x, x, out, 0, EPS),
        channels=channels,
        block=tile(channels),
        activate=False,
        add=False,
        num_warps=1,
        **overlap(x),
    )
    return out


def norm_mish_add(y: Tensor, scale: Tensor, shift: Tensor, other: Tensor | None) -> Tensor:
    rows, channels = y.shape
    require("y", y, (rows, channels), torch.float32)
    require("scale", scale, (channels,), torch.float32)
    require("shift", shift, (channels,), torch.float32)
    if other is not None and (
        other.shape != y.shape or other.dtype != torch.float32 or other.stride(1) != 1
    ):
        raise ValueError(f"other: {list(other.shape)} {other.dtype}; needed: {list(y.shape)} rows")
    out = torch.empty_like(y)
    _norm_mish[(rows,)](
        y,
        scale,
        shift,
        y if other is None else other,
        out,
        0 if other is None else other.stride(0),
        EPS,
        channels=channels,
        block=tile(channels),
        activate=True,
        add=other is not None,
        num_warps=1,
        **overlap(y),
    )
    return out
