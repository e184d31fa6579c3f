"""Triton version of `mosslive.kernels.paged_attention`, for decode steps and for prefill.

Split-KV attention. A program takes a tile of queries (some rows of one request, times the query
heads that share a key head) and loops over keys. Where tiles are few, as in a decode step of a few
requests, the context is cut into splits, one program each, and a second kernel merges them. (The
last split to finish could merge in the same kernel, but alone that takes 4 us and more.) Reads
positions and the metadata, never the spans, and reads no value on the host, so a captured launch
serves any contexts.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import after_previous, overlap, release_next, wait_for_previous
from mosslive.kernels.paged_attention import AttentionMetadata, PagedBatch

LOG2_E = 1.4426950408889634
_SMS = 132  # of an H200


class Shape(NamedTuple):
    """Launch settings; measured on an H200 with D = 128, 32 query and 8 key heads, bf16."""

    queries: int  # rows of a tile, in (row, head) pairs
    keys: int  # of one loop iteration
    splits: int  # of the context, at most; a power of 2
    warps: int
    stages: int


def paged_attention(q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: PagedBatch) -> Tensor:
    """q [T, H, D]; k_pages, v_pages [N, S, H_kv, D] → [T, H, D]. `batch.metadata` is required."""
    metadata = batch.metadata
    assert metadata is not None, "the Triton kernel needs `metadata`"
    count, heads, width = q.shape
    _, page_size, kv_heads, _ = k_pages.shape
    group, requests = heads // kv_heads, len(metadata.tables)
    assert k_pages.shape == v_pages.shape, "k_pages and v_pages must have one shape"
    assert k_pages.shape[-1] == width, "keys must be as wide as queries"
    assert group * kv_heads == heads, "H must be a multiple of H_kv"
    for tensor in (q, k_pages, v_pages):
        assert tensor.is_contiguous(), "tensors must be contiguous"
        assert tensor.dtype == q.dtype, "q, keys and values must have one dtype"
    assert batch.positions.dtype == torch.int64, "positions must be int64"
    assert batch.positions.shape == (count,), "one position is needed for each row"
    assert batch.positions.is_contiguous(), "positions must be contiguous"
    check_metadata(metadata)

    shape = _shape(requests, metadata.longest, group, kv_heads)
    if q.dtype == torch.float32:  # twice the bytes, and no tensor cores
        shape = shape._replace(queries=max(16, triton.next_power_of_2(group)), keys=32, stages=1)
    tile_rows = 1 if metadata.longest == 1 else shape.queries // group
    tiles = triton.cdiv(metadata.longest, tile_rows)
    common = {
        "kv_heads": kv_heads,
        "group": group,
        "width": width,
        "tile_rows": tile_rows,
        "block_keys": shape.keys,
        "block_width": max(16, triton.next_power_of_2(width)),
        "splits": shape.splits,
        "single": metadata.longest == 1 and count == requests,  # every request has exactly one row
        **overlap(q),
    }
    result = torch.empty_like(q)
    partials = requests * tiles * tile_rows * heads * shape.splits if shape.splits > 1 else 0
    partial = torch.empty(partials, common["block_width"], dtype=torch.float32, device=q.device)
    lse = torch.empty(partials, dtype=torch.float32, device=q.device)
    _paged_attention[kv_heads, tiles * shape.splits, requests](
        q,
        k_pages,
        v_pages,
        batch.positions,
        metadata.tables,
        metadata.starts,
        result,
        partial,
        lse,
        LOG2_E / width**0.5,
        metadata.tables.shape[1],
        page_size=page_size,
        block_queries=shape.queries,
        num_warps=shape.warps,
        num_stages=shape.stages,
        **common,
    )
    if shape.splits > 1:
        grid = (heads, metadata.longest, requests)
        merge_splits[grid](batch.positions, metadata.starts, result, partial, lse, **common)
    return result


def check_metadata(metadata: AttentionMetadata) -> None:
    for tensor in metadata[:2]:
        assert tensor.dtype == torch.int32, "tables and starts must be int32"
        assert tensor.is_contiguous(), "tensors must be contiguous"
    requests = len(metadata.tables)
    assert metadata.starts.shape == (requests + 1,), "starts must be [B + 1]"


def _shape(requests: int, longest: int, group: int, kv_heads: int) -> Shape:
    """Enough programs to keep every SM reading. The launch does not know the contexts; splits
    without keys end at once."""
    if longest == 1:
        queries, pairs = max(16, triton.next_power_of_2(group)), requests * kv_heads
        if pairs <= 32:
            return Shape(queries, keys=32, splits=64, warps=4, stages=4)
        if pairs <= 256:
            return Shape(queries, keys=64, splits=8, warps=4, stages=3)
        # Contexts of equal length would be a little faster with one split, but are rare.
        return Shape(queries, keys=64, splits=2 if pairs <= 1024 else 1, warps=4, stages=2)
    queries = max(64, triton.next_power_of_2(group))
    programs = triton.cdiv(longest, queries // group) * kv_heads * requests
    splits = min(16, 2 ** (max(1, _SMS // programs).bit_length() - 1))  # all run at once
    return Shape(queries, keys=64, splits=splits, warps=4, stages=3)


@triton.jit(do_not_specialize=["table_width"])
def _paged_attention(  # type: ignore[no-untyped-def]
    q,
    k_pages,
    v_pages,
    positions,
    tables,
    starts,
    result,
    partial,
    lse,
    scale,
    table_width,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    width: tl.constexpr,
    page_size: tl.constexpr,
    tile_rows: tl.constexpr,
    block_queries: tl.constexpr,
    block_keys: tl.constexpr,
    block_width: tl.constexpr,
    splits: tl.constexpr,
    single: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    after_previous(OVERLAP)
    kv_head, request = tl.program_id(0), tl.program_id(2)
    tiles = tl.num_programs(1) // splits
    tile = (
        tiles - 1 - tl.program_id(1) // splits
    )  # the last tile sees the most keys, so it starts first
    split = tl.program_id(1) % splits
    if single:  # saves one dependent load
        start, end = request, request + 1
    else:
        start = tl.load(starts + request) + tile * tile_rows
        end = tl.minimum(tl.load(starts + request + 1), start + tile_rows)
    if start >= end:
        return
    context = tl.load(positions + end - 1).to(tl.int32) + 1  # positions of a request ascend
    split_keys = keys_per_split(context, splits, block_keys)
    first, last = split * split_keys, tl.minimum(context, split * split_keys + split_keys)
    if first >= last:
        return

    query = tl.arange(0, block_queries)
    row = start + query // group
    held = (query < tile_rows * group) & (row < end)
    position = tl.load(positions + row, mask=held, other=-1).to(tl.int32)
    column = tl.arange(0, block_width)
    wide = column < width
    place = (row * kv_heads * group + kv_head * group + query % group).to(tl.int64) * width
    inside = held[:, None] & wide[None, :]
    queries = tl.load(q + place[:, None] + column[None, :], mask=inside, other=0.0)
    top = tl.full([block_queries], float("-inf"), tl.float32)
    total = tl.zeros([block_queries], tl.float32)
    sums = tl.zeros([block_queries, block_width], tl.float32)
    offset = tl.arange(0, block_keys)
    table = tables + request * table_width
    # Pages are looked up one iteration ahead, so that keys can be prefetched.
    page = tl.load(table + (first + offset) // page_size, mask=first + offset < last, other=0)
    for key_0 in tl.range(first, last, block_keys):
        key = key_0 + offset
        slot = page.to(tl.int64) * page_size + key % page_size
        at = (slot * kv_heads + kv_head)[:, None] * width + column[None, :]
        # Slots after the newest row may hold anything, including NaN: they must not be read.
        seen = (key < last)[:, None] & wide[None, :]
        keys = tl.load(k_pages + at, mask=seen, other=0.0)
        values = tl.load(v_pages + at, mask=seen, other=0.0)
        ahead = key + block_keys
        page = tl.load(table + ahead // page_size, mask=ahead < last, other=0)
        visible = key[None, :] <= position[:, None]
        top, total, sums = online_softmax(queries, keys, values, visible, scale, top, total, sums)

    if split_keys >= context:
        some = tl.where(total == 0, 1.0, total)[:, None]  # rows beyond the tile's end
        to = result + place[:, None] + column[None, :]
        tl.store(to, (sums / some).to(result.dtype.element_ty), mask=inside)
    else:
        at_partial = first_partial(
            request, tile, kv_head, tiles, kv_heads, splits, tile_rows * group
        )
        at_partial += split * (tile_rows * group) + query
        store_split(partial, lse, at_partial, top, total, sums, held, column, wide, block_width)


@triton.jit
def keys_per_split(context, splits: tl.constexpr, block_keys: tl.constexpr):  # type: ignore[no-untyped-def]
    """Keys of one split: a multiple of the loop's block."""
    return tl.cdiv(tl.cdiv(context, splits), block_keys) * block_keys


@triton.jit
def online_softmax(queries, keys, values, visible, scale, top, total, sums):  # type: ignore[no-untyped-def]
    """The online softmax after more keys: largest score, sum of weights, weighted sum of values."""
    scores = tl.dot(queries, keys.T, input_precision="ieee") * scale
    scores = tl.where(visible, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, axis=1))
    base = tl.where(new_top == float("-inf"), 0.0, new_top)  # no visible key yet
    weights = tl.exp2(scores - base[:, None])
    rescale = tl.exp2(top - base)
    total = total * rescale + tl.sum(weights, axis=1)
    sums = tl.dot(weights.to(values.dtype), values, sums * rescale[:, None], input_precision="ieee")
    return new_top, total, sums


@triton.jit
def store_split(  # type: ignore[no-untyped-def]
    partial, lse, at_partial, top, total, sums, held, column, wide, block_width: tl.constexpr
):
    """A split's weighted mean of values and the base-2 log-sum-exp of its scores; -inf for a row
    of the tile that sees no key of this split."""
    some = tl.where(total == 0, 1.0, total)
    to = partial + at_partial[:, None] * block_width + column[None, :]
    tl.store(to, sums / some[:, None], mask=held[:, None] & wide[None, :])
    own_lse = tl.where(total == 0, float("-inf"), top + tl.log2(some))
    tl.store(lse + at_partial, own_lse, mask=held)


@triton.jit
def first_partial(request, tile, kv_head, tiles, kv_heads, splits, queries):  # type: ignore[no-untyped-def]
    """Index of a tile's first partial result; one for each split and query, queries adjacent."""
    return ((request * tiles + tile) * kv_heads + kv_head).to(tl.int64) * (splits * queries)


@triton.jit
def merge_splits(  # type: ignore[no-untyped-def]
    positions,
    starts,
    result,
    partial,
    lse,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    width: tl.constexpr,
    tile_rows: tl.constexpr,
    block_keys: tl.constexpr,
    block_width: tl.constexpr,
    splits: tl.constexpr,
    single: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One query's result: the mean of its splits, weighted by 2^lse."""
    release_next(OVERLAP)
    head, request = tl.program_id(0), tl.program_id(2)
    if single:
        start, end = request, request + 1
    else:
        start, end = tl.load(starts + request), tl.load(starts + request + 1)
    row = start + tl.program_id(1)
    if row >= end:
        return
    tile = tl.program_id(1) // tile_rows
    tile_end = tl.minimum(end, start + (tile + 1) * tile_rows)
    context = tl.load(positions + tile_end - 1).to(tl.int32) + 1
    tiles = tl.cdiv(tl.num_programs(1), tile_rows)
    first = first_partial(request, tile, head // group, tiles, kv_heads, splits, tile_rows * group)
    split = tl.arange(0, splits)
    at_partial = first + split * (tile_rows * group)
    at_partial += (row - start - tile * tile_rows) * group + head % group
    column = tl.arange(0, block_width)
    split_keys = keys_per_split(context, splits, block_keys)
    there = split * split_keys < context
    wait_for_previous(OVERLAP)
    if split_keys >= context:
        return
    own_lse = tl.load(lse + at_partial, mask=there, other=float("-inf"))
    at = partial + at_partial[:, None] * block_width + column[None, :]
    mean = tl.load(at, mask=there[:, None], other=0.0)
    weight = tl.exp2(own_lse - tl.max(own_lse, axis=0))
    answer = tl.sum(mean * weight[:, None], axis=0) / tl.sum(weight, axis=0)
    to = result + (row * kv_heads * group + head).to(tl.int64) * width + column
    tl.store(to, answer.to(result.dtype.element_ty), mask=column < width)
