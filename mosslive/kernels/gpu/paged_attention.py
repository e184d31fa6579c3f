"""Triton twin of `mosslive.kernels.paged_attention`, for decode steps and for many rows at once.

A program takes a tile of queries (some rows of one request, times the query heads that share a key
head) and walks over keys. Where tiles are few, as in a decode step of a few requests, the context
is cut into parts, one program each, and a second kernel joins them (the last part to finish could
do that in the same kernel, but alone it takes 4 us and more). Reads positions and the spread, never
the spans, and asks the host for nothing, so a recorded launch serves any contexts.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import after_previous, overlap, release_next, wait_for_previous
from mosslive.kernels.paged_attention import PagedBatch, Spread

LOG2_E = 1.4426950408889634
_SMS = 132  # of an H200


class Shape(NamedTuple):
    """How a launch is cut; measured on an H200 with D = 128, 32 query and 8 key heads, bf16."""

    queries: int  # rows of a tile, in (row, head) pairs
    keys: int  # of one turn of the loop
    parts: int  # of the context, at most
    warps: int
    stages: int


def paged_attention(q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: PagedBatch) -> Tensor:
    """q [T, H, D]; k_pages, v_pages [N, S, H_kv, D] → [T, H, D]. `batch.spread` must be there."""
    spread = batch.spread
    assert spread is not None, "a kernel reads the spread, not the spans"
    count, heads, width = q.shape
    _, page_size, kv_heads, _ = k_pages.shape
    group, requests = heads // kv_heads, len(spread.tables)
    assert k_pages.shape == v_pages.shape, "a value for every key"
    assert k_pages.shape[-1] == width, "keys are as wide as queries"
    assert group * kv_heads == heads, "every key head serves equally many query heads"
    for tensor in (q, k_pages, v_pages):
        assert tensor.is_contiguous(), "no gaps"
        assert tensor.dtype == q.dtype, "one dtype"
    assert batch.positions.dtype == torch.int64, "positions are int64"
    assert batch.positions.shape == (count,), "one position for each row"
    assert batch.positions.is_contiguous(), "no gaps"
    check_spread(spread)

    shape = _shape(requests, spread.longest, group, kv_heads)
    if q.dtype == torch.float32:  # twice the bytes, and products that no tensor core takes
        shape = shape._replace(queries=max(16, triton.next_power_of_2(group)), keys=32, stages=1)
    tile_rows = 1 if spread.longest == 1 else shape.queries // group
    tiles = triton.cdiv(spread.longest, tile_rows)
    common = {
        "kv_heads": kv_heads,
        "group": group,
        "width": width,
        "tile_rows": tile_rows,
        "block_keys": shape.keys,
        "block_width": max(16, triton.next_power_of_2(width)),
        "parts": shape.parts,
        "single": spread.longest == 1 and count == requests,  # every request has exactly one row
        **overlap(q),
    }
    result = torch.empty_like(q)
    cells = requests * tiles * tile_rows * heads * shape.parts if shape.parts > 1 else 0
    partial = torch.empty(cells, common["block_width"], dtype=torch.float32, device=q.device)
    heights = torch.empty(cells, dtype=torch.float32, device=q.device)
    _paged_attention[kv_heads, tiles * shape.parts, requests](
        q,
        k_pages,
        v_pages,
        batch.positions,
        spread.tables,
        spread.starts,
        result,
        partial,
        heights,
        LOG2_E / width**0.5,
        spread.tables.shape[1],
        page_size=page_size,
        block_queries=shape.queries,
        num_warps=shape.warps,
        num_stages=shape.stages,
        **common,
    )
    if shape.parts > 1:
        grid = (heads, spread.longest, requests)
        join[grid](batch.positions, spread.starts, result, partial, heights, **common)
    return result


def check_spread(spread: Spread) -> None:
    for tensor in spread[:2]:
        assert tensor.dtype == torch.int32, "tables and starts are int32"
        assert tensor.is_contiguous(), "no gaps"
    requests = len(spread.tables)
    assert spread.starts.shape == (requests + 1,), "a start for each request, and the end"


def _shape(requests: int, longest: int, group: int, kv_heads: int) -> Shape:
    """Enough programs to keep every SM reading, as far as the launch can know: contexts may be
    anything, and parts that find nothing to do end at once."""
    if longest == 1:
        queries, pairs = max(16, triton.next_power_of_2(group)), requests * kv_heads
        if pairs <= 32:
            return Shape(queries, keys=32, parts=64, warps=4, stages=4)
        if pairs <= 256:
            return Shape(queries, keys=64, parts=8, warps=4, stages=3)
        # Contexts of one length would be a little faster in one part; they rarely are.
        return Shape(queries, keys=64, parts=2 if pairs <= 1024 else 1, warps=4, stages=2)
    queries = max(64, triton.next_power_of_2(group))
    programs = triton.cdiv(longest, queries // group) * kv_heads * requests
    parts = min(16, 2 ** (max(1, _SMS // programs).bit_length() - 1))  # all run at once
    return Shape(queries, keys=64, parts=parts, warps=4, stages=3)


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
    heights,
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
    parts: tl.constexpr,
    single: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    after_previous(OVERLAP)
    kv_head, request = tl.program_id(0), tl.program_id(2)
    tiles = tl.num_programs(1) // parts
    tile = tiles - 1 - tl.program_id(1) // parts  # the last sees the most keys: it starts first
    part = tl.program_id(1) % parts
    if single:  # one wait less
        start, end = request, request + 1
    else:
        start = tl.load(starts + request) + tile * tile_rows
        end = tl.minimum(tl.load(starts + request + 1), start + tile_rows)
    if start >= end:
        return
    context = tl.load(positions + end - 1).to(tl.int32) + 1  # positions of a request ascend
    share = share_of(context, parts, block_keys)
    first, last = part * share, tl.minimum(context, part * share + share)
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
    # Pages are looked up a turn ahead: keys can then be fetched before they are needed.
    page = tl.load(table + (first + offset) // page_size, mask=first + offset < last, other=0)
    for key_0 in tl.range(first, last, block_keys):
        key = key_0 + offset
        slot = page.to(tl.int64) * page_size + key % page_size
        at = (slot * kv_heads + kv_head)[:, None] * width + column[None, :]
        # Rows after the newest may hold anything, NaN included: they must not be read.
        seen = (key < last)[:, None] & wide[None, :]
        keys = tl.load(k_pages + at, mask=seen, other=0.0)
        values = tl.load(v_pages + at, mask=seen, other=0.0)
        ahead = key + block_keys
        page = tl.load(table + ahead // page_size, mask=ahead < last, other=0)
        visible = key[None, :] <= position[:, None]
        top, total, sums = take_in(queries, keys, values, visible, scale, top, total, sums)

    if share >= context:
        some = tl.where(total == 0, 1.0, total)[:, None]  # rows of the tile that are not there
        to = result + place[:, None] + column[None, :]
        tl.store(to, (sums / some).to(result.dtype.element_ty), mask=inside)
    else:
        cell = first_cell(request, tile, kv_head, tiles, kv_heads, parts, tile_rows * group)
        cell += part * (tile_rows * group) + query
        store_part(partial, heights, cell, top, total, sums, held, column, wide, block_width)


@triton.jit
def share_of(context, parts: tl.constexpr, block_keys: tl.constexpr):  # type: ignore[no-untyped-def]
    """Keys of one part: whole turns of the loop."""
    return tl.cdiv(tl.cdiv(context, parts), block_keys) * block_keys


@triton.jit
def take_in(queries, keys, values, visible, scale, top, total, sums):  # type: ignore[no-untyped-def]
    """The running softmax after more keys: largest score, sum of weights, sum of values."""
    scores = tl.dot(queries, keys.T, input_precision="ieee") * scale
    scores = tl.where(visible, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, axis=1))
    base = tl.where(new_top == float("-inf"), 0.0, new_top)  # nothing to see yet
    weights = tl.exp2(scores - base[:, None])
    fade = tl.exp2(top - base)
    total = total * fade + tl.sum(weights, axis=1)
    sums = tl.dot(weights.to(values.dtype), values, sums * fade[:, None], input_precision="ieee")
    return new_top, total, sums


@triton.jit
def store_part(  # type: ignore[no-untyped-def]
    partial, heights, cell, top, total, sums, held, column, wide, block_width: tl.constexpr
):
    """A part's mean of values, and the logarithm of its weight. A row of the tile may have seen
    nothing of this part: its weight is 0."""
    some = tl.where(total == 0, 1.0, total)
    to = partial + cell[:, None] * block_width + column[None, :]
    tl.store(to, sums / some[:, None], mask=held[:, None] & wide[None, :])
    height = tl.where(total == 0, float("-inf"), top + tl.log2(some))
    tl.store(heights + cell, height, mask=held)


@triton.jit
def first_cell(request, tile, kv_head, tiles, kv_heads, parts, queries):  # type: ignore[no-untyped-def]
    """Cells hold one query of one part each, queries next to each other."""
    return ((request * tiles + tile) * kv_heads + kv_head).to(tl.int64) * (parts * queries)


@triton.jit
def join(  # type: ignore[no-untyped-def]
    positions,
    starts,
    result,
    partial,
    heights,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    width: tl.constexpr,
    tile_rows: tl.constexpr,
    block_keys: tl.constexpr,
    block_width: tl.constexpr,
    parts: tl.constexpr,
    single: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One query from its parts: their mean, weighted by 2 to the part's height."""
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
    first = first_cell(request, tile, head // group, tiles, kv_heads, parts, tile_rows * group)
    part = tl.arange(0, parts)
    cell = first + part * (tile_rows * group)
    cell += (row - start - tile * tile_rows) * group + head % group
    column = tl.arange(0, block_width)
    share = share_of(context, parts, block_keys)
    there = part * share < context
    wait_for_previous(OVERLAP)
    if share >= context:
        return
    height = tl.load(heights + cell, mask=there, other=float("-inf"))
    at = partial + cell[:, None] * block_width + column[None, :]
    mean = tl.load(at, mask=there[:, None], other=0.0)
    weight = tl.exp2(height - tl.max(height, axis=0))
    answer = tl.sum(mean * weight[:, None], axis=0) / tl.sum(weight, axis=0)
    to = result + (row * kv_heads * group + head).to(tl.int64) * width + column
    tl.store(to, answer.to(result.dtype.element_ty), mask=column < width)
