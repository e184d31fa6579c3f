"""Triton version of `mosslive.kernels.flow_attention`.

A program has all queries of one head of one row and one split of the keys. With few streams a row's
keys are split among several programs, and a second kernel merges their results. Keys are gathered
row by row through the page table, so tiles need not be multiples of pages.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.flow_chunks import Chunks
from mosslive.kernels.gpu.flow_tiles import input_precision, require, tile
from mosslive.kernels.gpu.overlap import after_previous, overlap

_PLACE_TILE = 64  # of the position table's width


class Splits(NamedTuple):
    splits: int  # programs for one head of one row; a power of 2
    keys: int  # of one loop iteration
    warps: int
    stages: int


def attention_splits(groups: int, columns: int, dtype: torch.dtype, placed: bool) -> Splits:
    """`groups`: heads times rows. Measured on an H200 for chunks of 20 columns."""
    warps = 4 if columns <= 32 else 8  # not measured: longer chunks need more registers
    if placed:
        return Splits(1 if groups > 64 else 4, 32, warps, 2)
    if groups >= 512:
        return Splits(1, 128 if dtype != torch.float32 and columns <= 32 else 64, warps, 2)
    splits = 8 if groups <= 32 else 4 if groups <= 128 else 2
    return Splits(splits, 64, warps, 3 if warps == 4 else 2)


@triton.jit
def _split_range(index, held, window, split, columns, splits, keys, windowed: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first key of a split, and the key after its last."""
    first, end = 0, index * columns + held
    if windowed:
        first = tl.maximum(0, index * columns - window)
    split_keys = tl.cdiv(tl.cdiv(end - first, splits), keys) * keys
    return first + split * split_keys, tl.minimum(end, first + split * split_keys + split_keys)


@triton.jit(do_not_specialize=["streams", "window", "last_place"])
def _attention(  # type: ignore[no-untyped-def]
    q_at,
    pages_at,
    table_at,
    index_at,
    held_at,
    out_at,
    partial_at,
    lse_at,
    rotated_at,
    places_at,
    streams,
    table_stride,
    value_stride,
    window,
    last_place,
    scale,
    halves: tl.constexpr,
    heads: tl.constexpr,
    columns: tl.constexpr,
    width: tl.constexpr,
    extent: tl.constexpr,
    splits: tl.constexpr,
    windowed: tl.constexpr,
    placed: tl.constexpr,
    tile_t: tl.constexpr,
    tile_d: tl.constexpr,
    tile_n: tl.constexpr,
    tile_e: tl.constexpr,
    precision: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    after_previous(OVERLAP)
    group, split = tl.program_id(0), tl.program_id(1)
    head, row = group % heads, group // heads
    stream, half = row % streams, row // streams
    index, held = tl.load(index_at + stream), tl.load(held_at + stream)
    first, last = _split_range(index, held, window, split, columns, splits, tile_n, windowed)
    t, d, n = tl.arange(0, tile_t), tl.arange(0, tile_d), tl.arange(0, tile_n)
    wide = (d < width)[None, :]
    query = (t < columns)[:, None] & wide
    cell = ((row * columns + t) * heads + head)[:, None]
    q = tl.load(q_at + cell * width + d[None, :], mask=query, other=0.0)
    sums = tl.zeros((tile_t, tile_d), tl.float32)
    total = tl.zeros((tile_t,), tl.float32)
    top = tl.full((tile_t,), float("-inf"), tl.float32)
    table = table_at + stream * table_stride
    # Pages are looked up one iteration ahead, so that keys can be prefetched.
    page = tl.load(table + (first + n) // columns, mask=first + n < last, other=0)
    for start in range(first, last, tile_n):
        key = start + n
        seen = key < last
        base = ((page.to(tl.int64) * halves + half) * heads + head) * (columns * width)
        at = (base + key % columns * width)[:, None] + d[None, :]
        k = tl.load(pages_at + at, mask=seen[:, None] & wide, other=0.0)
        v = tl.load(pages_at + value_stride + at, mask=seen[:, None] & wide, other=0.0)
        ahead = key + tile_n
        page = tl.load(table + ahead // columns, mask=ahead < last, other=0)
        scores = tl.dot(q, tl.trans(k), input_precision=precision) * scale
        if placed:
            place_row = places_at + tl.minimum(key, last_place)[:, None] * extent
            for e_start in range(0, extent, tile_e):
                e = (e_start + tl.arange(0, tile_e))[None, :]
                aim = (t < columns)[:, None] & (e < extent)
                aimed = tl.load(rotated_at + cell * extent + e, mask=aim, other=0.0)
                place = tl.load(place_row + e, mask=e < extent, other=0.0)
                scores = tl.dot(aimed, tl.trans(place), scores, input_precision=precision)
        scores = tl.where(seen[None, :], scores * 1.4426950408889634, float("-inf"))
        higher = tl.maximum(
            top, tl.max(scores, 1)
        )  # finite: each iteration has a visible key for all queries
        weights = tl.exp2(scores - higher[:, None])
        rescale = tl.exp2(top - higher)
        total = total * rescale + tl.sum(weights, 1)
        sums = tl.dot(weights.to(v.dtype), v, sums * rescale[:, None], input_precision=precision)
        top = higher
    if splits == 1:
        answer = sums / total[:, None]
        tl.store(out_at + cell * width + d[None, :], answer.to(out_at.dtype.element_ty), mask=query)
    elif first < last:
        at_partial = (group * columns + t) * splits + split
        answer = sums / total[:, None]
        tl.store(partial_at + at_partial[:, None] * tile_d + d[None, :], answer, mask=query)
        tl.store(lse_at + at_partial, top + tl.log2(total), mask=t < columns)


@triton.jit(do_not_specialize=["streams", "window"])
def _merge_splits(  # type: ignore[no-untyped-def]
    index_at,
    held_at,
    out_at,
    partial_at,
    lse_at,
    streams,
    window,
    heads: tl.constexpr,
    columns: tl.constexpr,
    width: tl.constexpr,
    splits: tl.constexpr,
    windowed: tl.constexpr,
    tile_d: tl.constexpr,
    tile_n: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One query's result: the mean of its splits, weighted by 2^lse."""
    after_previous(OVERLAP)
    group, t = tl.program_id(0), tl.program_id(1)
    head, row = group % heads, group // heads
    split, d = tl.arange(0, splits), tl.arange(0, tile_d)
    index, held = tl.load(index_at + row % streams), tl.load(held_at + row % streams)
    first, last = _split_range(index, held, window, split, columns, splits, tile_n, windowed)
    there = first < last
    at_partial = (group * columns + t) * splits + split
    own_lse = tl.load(lse_at + at_partial, mask=there, other=float("-inf"))
    mean = tl.load(
        partial_at + at_partial[:, None] * tile_d + d[None, :],
        mask=there[:, None] & (d < width)[None, :],
        other=0.0,
    )
    weight = tl.exp2(own_lse - tl.max(own_lse, 0))
    answer = tl.sum(mean * weight[:, None], 0) / tl.sum(weight, 0)
    place = ((row * columns + t) * heads + head) * width + d
    tl.store(out_at + place, answer.to(out_at.dtype.element_ty), mask=d < width)


def chunk_attention(
    q: Tensor,
    pages: Tensor,
    chunks: Chunks,
    window: int | None = None,
    rotated: Tensor | None = None,
    places: Tensor | None = None,
) -> Tensor:
    rows, columns, heads, width = q.shape
    streams = len(chunks.table)
    halves = rows // streams
    require("q", q, (halves * streams, columns, heads, width), pages.dtype)
    require("pages", pages, (2, pages.shape[1], halves, heads, columns, width), pages.dtype)
    require("table", chunks.table, tuple(chunks.table.shape), torch.int32)
    require("index", chunks.index, (streams,), torch.int32)
    require("held", chunks.held, (streams,), torch.int32)
    placed, extent = rotated is not None, 1
    aimed, table = (q if rotated is None else rotated), (q if places is None else places)
    if placed:
        extent = aimed.shape[3]
        require("rotated", aimed, (rows, columns, heads, extent), torch.float32)
        require("places", table, (len(table), extent), torch.float32)
        if q.dtype != torch.float32:
            raise ValueError(f"q {q.dtype} with positions; allowed: float32")
    groups = rows * heads
    splitting = attention_splits(groups, columns, q.dtype, placed)
    split, tile_d = splitting.splits > 1, tile(width)
    partials = groups * columns * splitting.splits if split else 0
    out = torch.empty_like(q)
    partial = torch.empty(partials, tile_d, device=q.device)
    lse = torch.empty(partials, device=q.device)
    nearest = 0 if window is None else window
    _attention[(groups, splitting.splits)](
        q,
        pages,
        chunks.table,
        chunks.index,
        chunks.held,
        out,
        partial,
        lse,
        aimed,
        table,
        streams,
        chunks.table.stride(0),
        pages.stride(0),
        nearest,
        len(table) - 1,
        width**-0.5,
        halves=halves,
        heads=heads,
        columns=columns,
        width=width,
        extent=extent,
        splits=splitting.splits,
        windowed=window is not None,
        placed=placed,
        tile_t=tile(columns),
        tile_d=tile_d,
        tile_n=splitting.keys,
        tile_e=min(_PLACE_TILE, tile(extent)),
        precision=input_precision(q),
        num_warps=splitting.warps,
        num_stages=splitting.stages,
        **overlap(q),
    )
    if split:
        _merge_splits[(groups, columns)](
            chunks.index,
            chunks.held,
            out,
            partial,
            lse,
            streams,
            nearest,
            heads=heads,
            columns=columns,
            width=width,
            splits=splitting.splits,
            windowed=window is not None,
            tile_d=tile_d,
            tile_n=splitting.keys,
            num_warps=1,
            **overlap(q),
        )
    return out
