"""Twin of `kernels.attend`. For one row: norm, rotation, storing, keys in one launch, then a join.

Of what attention reads, only the newest row is made in this step. A program therefore fetches its
first keys and values before the projection is ready; what is left after the wait is arithmetic. The
newest key and value never come back from memory: they join as the last key. With more rows, which
keep the device busy as they are, placing and attention run one after the other.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import overlap, release_next, wait_for_previous
from mosslive.kernels.gpu.paged_attention import (
    LOG2_E,
    Shape,
    check_spread,
    first_cell,
    join,
    paged_attention,
    share_of,
    store_part,
    take_in,
)
from mosslive.kernels.gpu.place_qkv import check_qkv, norm_and_turn, place_qkv, turning
from mosslive.kernels.paged_attention import LayerPages, PagedBatch

# Of the context: enough programs for all processors, and those that find no keys end at once.
_PARTS = 64


def attend(
    qkv: Tensor,
    qk_norm: Tensor,
    eps: float,
    cos: Tensor,
    signed_sin: Tensor,
    pages: LayerPages,
    batch: PagedBatch,
) -> Tensor:
    """The batch's tensors and all earlier rows of the pages must have been written before the last
    launch that did not overlap with its neighbours: they are read before the wait."""
    spread = batch.spread
    assert spread is not None, "a kernel reads the spread, not the spans"
    # Milliseconds of a whole step on an H200, against one after the other: 1 stream 3.96 (4.01), 64
    # streams 7.64 (7.28), 256 streams 17.6 (16.1). So for one row; in between is not measured.
    if len(qkv) != 1 or len(spread.tables) != 1:
        positions, slots = batch.positions, batch.slots
        q = place_qkv(qkv, qk_norm, eps, cos, signed_sin, positions, slots, pages)
        return paged_attention(q, pages.k, pages.v, batch)
    check_qkv(qkv, qk_norm, cos, signed_sin, batch.positions, batch.slots, pages)
    check_spread(spread)
    kv_heads, width = pages.k.shape[-2:]
    heads = len(qk_norm) - kv_heads
    group = heads // kv_heads
    assert group * kv_heads == heads, "every key head serves equally many query heads"
    queries = max(16, triton.next_power_of_2(group + 2))
    shape = Shape(queries, keys=16, parts=_PARTS, warps=2, stages=3)
    if qkv.dtype == torch.float32:  # twice the bytes, and products that no tensor core takes
        shape = Shape(queries, keys=32, parts=_PARTS, warps=4, stages=1)
    common = {
        "kv_heads": kv_heads,
        "group": group,
        "width": width,
        "block_keys": shape.keys,
        "block_width": max(16, triton.next_power_of_2(width)),
        "parts": shape.parts,
        **overlap(qkv),
    }
    result = torch.empty(1, heads, width, dtype=qkv.dtype, device=qkv.device)
    cells = heads * shape.parts
    partial = torch.empty(cells, common["block_width"], dtype=torch.float32, device=qkv.device)
    heights = torch.empty(cells, dtype=torch.float32, device=qkv.device)
    _attend[kv_heads, shape.parts](
        qkv,
        qk_norm,
        eps,
        cos,
        signed_sin,
        *pages,
        batch.positions,
        batch.slots,
        spread.tables,
        result,
        partial,
        heights,
        LOG2_E / width**0.5,
        page_size=pages.k.shape[1],
        block_queries=shape.queries,
        num_warps=shape.warps,
        num_stages=shape.stages,
        enable_fp_fusion=False,  # as in `place_qkv`: each product is rounded on its own
        **common,
    )
    join[heads, 1, 1](
        batch.positions, spread.starts, result, partial, heights,
        tile_rows=1, single=True, **common,
    )  # fmt: skip
    return result


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    qkv,
    qk_norm,
    eps,
    cos,
    signed_sin,
    k_pages,
    v_pages,
    positions,
    slots,
    tables,
    result,
    partial,
    heights,
    scale,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    width: tl.constexpr,
    page_size: tl.constexpr,
    block_queries: tl.constexpr,
    block_keys: tl.constexpr,
    block_width: tl.constexpr,
    parts: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    release_next(OVERLAP)
    kv_head, part = tl.program_id(0), tl.program_id(1)
    newest, slot = tl.load(positions), tl.load(slots)
    position = newest.to(tl.int32)
    context = position + 1
    share = share_of(context, parts, block_keys)
    first, last = part * share, tl.minimum(context, part * share + share)
    if first >= last:
        return  # the first part never comes here: so no kernel of a step ends before its forerunner
    column = tl.arange(0, block_width)
    wide = column < width
    offset = tl.arange(0, block_keys)
    past = tl.minimum(last, position)  # keys of the pages end here
    key = first + offset
    page = tl.load(tables + key // page_size, mask=key < past, other=0)
    ahead = key + block_keys
    next_page = tl.load(tables + ahead // page_size, mask=ahead < past, other=0)
    # Rows of the tile: the query heads that share this key head, the key, the value.
    row = tl.arange(0, block_queries)
    head = tl.where(row < group, kv_head * group + row, row * kv_heads + kv_head)
    normed = (row <= group)[:, None] & wide[None, :]
    every = (row <= group + 1)[:, None] & wide[None, :]
    w, w_partner, c, s = turning(qk_norm, cos, signed_sin, newest, head, normed, width, block_width)
    at = (page.to(tl.int64) * page_size + key % page_size) * kv_heads + kv_head
    at = at[:, None] * width + column[None, :]
    seen = (key < past)[:, None] & wide[None, :]
    values = tl.load(v_pages + at, mask=seen, other=0.0)
    keys = tl.load(k_pages + at, mask=seen, other=0.0)
    page = next_page

    wait_for_previous(OVERLAP)
    raw, queries = norm_and_turn(
        qkv, w, w_partner, c, s, eps, head, normed, every, width, block_width
    )
    top = tl.full([block_queries], float("-inf"), tl.float32)
    total = tl.zeros([block_queries], tl.float32)
    sums = tl.zeros([block_queries, block_width], tl.float32)
    visible = (key < past)[None, :]
    top, total, sums = take_in(queries, keys, values, visible, scale, top, total, sums)
    for key_0 in tl.range(first + block_keys, past, block_keys):
        key = key_0 + offset
        at = (page.to(tl.int64) * page_size + key % page_size) * kv_heads + kv_head
        at = at[:, None] * width + column[None, :]
        seen = (key < past)[:, None] & wide[None, :]
        keys = tl.load(k_pages + at, mask=seen, other=0.0)
        values = tl.load(v_pages + at, mask=seen, other=0.0)
        ahead = key + block_keys
        page = tl.load(tables + ahead // page_size, mask=ahead < past, other=0)
        visible = (key < past)[None, :]
        top, total, sums = take_in(queries, keys, values, visible, scale, top, total, sums)

    if last > position:
        new_key = tl.sum(tl.where((row == group)[:, None], queries, 0.0).to(tl.float32), axis=0)
        new_value = tl.sum(tl.where((row == group + 1)[:, None], raw, 0.0).to(tl.float32), axis=0)
        to = (slot * kv_heads + kv_head) * width + column
        tl.store(k_pages + to, new_key.to(k_pages.dtype.element_ty), mask=wide)
        tl.store(v_pages + to, new_value.to(v_pages.dtype.element_ty), mask=wide)
        score = tl.sum(queries.to(tl.float32) * new_key[None, :], axis=1) * scale
        new_top = tl.maximum(top, score)
        weight, fade = tl.exp2(score - new_top), tl.exp2(top - new_top)
        total = total * fade + weight
        sums = sums * fade[:, None] + weight[:, None] * new_value[None, :]
        top = new_top

    asked = row < group
    if share >= context:
        to = result + (kv_head * group + row)[:, None] * width + column[None, :]
        answer = (sums / total[:, None]).to(result.dtype.element_ty)
        tl.store(to, answer, mask=asked[:, None] & wide[None, :])
    else:
        cell = first_cell(0, 0, kv_head, 1, kv_heads, parts, group) + part * group + row
        store_part(partial, heights, cell, top, total, sums, asked, column, wide, block_width)
