"""Triton version of `kernels.attend`; one row needs two launches.

The first does norm, RoPE, cache write and split-KV attention, the second merges the splits.

Of what attention reads, only the newest row is computed in this step. A program therefore fetches
its first keys and values before the projection is ready; only arithmetic is left after the wait.
The newest key and value are not read back from memory: they enter as the last key. With more rows,
which keep the device busy anyway, `norm_rope_cache` and `paged_attention` run one after the other.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.norm_rope_cache import (
    check_qkv,
    load_rotation,
    norm_and_rotate,
    norm_rope_cache,
)
from mosslive.kernels.gpu.overlap import overlap, release_next, wait_for_previous
from mosslive.kernels.gpu.paged_attention import (
    LOG2_E,
    Shape,
    check_metadata,
    first_partial,
    keys_per_split,
    merge_splits,
    online_softmax,
    paged_attention,
    store_split,
)
from mosslive.kernels.paged_attention import LayerPages, PagedBatch

# Enough programs for all SMs; those without keys end at once.
_SPLITS = 64


def attend(
    qkv: Tensor,
    qk_norm: Tensor,
    eps: float,
    cos: Tensor,
    signed_sin: Tensor,
    pages: LayerPages,
    batch: PagedBatch,
) -> Tensor:
    """The batch's tensors and all earlier rows of the pages are read before the wait: they must be
    written before the last launch that did not overlap with its neighbours."""
    metadata = batch.metadata
    assert metadata is not None, "the Triton kernel needs `metadata`"
    # Milliseconds of a whole step on an H200, in brackets as two kernels: 1 stream 3.96 (4.01), 64
    # streams 7.64 (7.28), 256 streams 17.6 (16.1). So only for one row; 2 to 63 are not measured.
    if len(qkv) != 1 or len(metadata.tables) != 1:
        positions, slots = batch.positions, batch.slots
        q = norm_rope_cache(qkv, qk_norm, eps, cos, signed_sin, positions, slots, pages)
        return paged_attention(q, pages.k, pages.v, batch)
    check_qkv(qkv, qk_norm, cos, signed_sin, batch.positions, batch.slots, pages)
    check_metadata(metadata)
    kv_heads, width = pages.k.shape[-2:]
    heads = len(qk_norm) - kv_heads
    group = heads // kv_heads
    assert group * kv_heads == heads, "H must be a multiple of H_kv"
    queries = max(16, triton.next_power_of_2(group + 2))
    shape = Shape(queries, keys=16, splits=_SPLITS, warps=2, stages=3)
    if qkv.dtype == torch.float32:  # twice the bytes, and no tensor cores
        shape = Shape(queries, keys=32, splits=_SPLITS, warps=4, stages=1)
    common = {
        "kv_heads": kv_heads,
        "group": group,
        "width": width,
        "block_keys": shape.keys,
        "block_width": max(16, triton.next_power_of_2(width)),
        "splits": shape.splits,
        **overlap(qkv),
    }
    result = torch.empty(1, heads, width, dtype=qkv.dtype, device=qkv.device)
    partials = heads * shape.splits
    partial = torch.empty(partials, common["block_width"], dtype=torch.float32, device=qkv.device)
    lse = torch.empty(partials, dtype=torch.float32, device=qkv.device)
    _attend[kv_heads, shape.splits](
        qkv,
        qk_norm,
        eps,
        cos,
        signed_sin,
        *pages,
        batch.positions,
        batch.slots,
        metadata.tables,
        result,
        partial,
        lse,
        LOG2_E / width**0.5,
        page_size=pages.k.shape[1],
        block_queries=shape.queries,
        num_warps=shape.warps,
        num_stages=shape.stages,
        enable_fp_fusion=False,  # as in `norm_rope_cache`: each product is rounded on its own
        **common,
    )
    merge_splits[heads, 1, 1](
        batch.positions, metadata.starts, result, partial, lse,
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
    lse,
    scale,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    width: tl.constexpr,
    page_size: tl.constexpr,
    block_queries: tl.constexpr,
    block_keys: tl.constexpr,
    block_width: tl.constexpr,
    splits: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    release_next(OVERLAP)
    kv_head, split = tl.program_id(0), tl.program_id(1)
    newest, slot = tl.load(positions), tl.load(slots)
    position = newest.to(tl.int32)
    context = position + 1
    split_keys = keys_per_split(context, splits, block_keys)
    first, last = split * split_keys, tl.minimum(context, split * split_keys + split_keys)
    if first >= last:
        return  # never in split 0, so no kernel of a step ends before the one before it
    column = tl.arange(0, block_width)
    wide = column < width
    offset = tl.arange(0, block_keys)
    past = tl.minimum(last, position)  # end of the keys that are in pages
    key = first + offset
    page = tl.load(tables + key // page_size, mask=key < past, other=0)
    ahead = key + block_keys
    next_page = tl.load(tables + ahead // page_size, mask=ahead < past, other=0)
    # Rows of the tile: the query heads that share this key head, the key, the value.
    row = tl.arange(0, block_queries)
    head = tl.where(row < group, kv_head * group + row, row * kv_heads + kv_head)
    normed = (row <= group)[:, None] & wide[None, :]
    every = (row <= group + 1)[:, None] & wide[None, :]
    w, w_partner, c, s = load_rotation(
        qk_norm, cos, signed_sin, newest, head, normed, width, block_width
    )
    at = (page.to(tl.int64) * page_size + key % page_size) * kv_heads + kv_head
    at = at[:, None] * width + column[None, :]
    seen = (key < past)[:, None] & wide[None, :]
    values = tl.load(v_pages + at, mask=seen, other=0.0)
    keys = tl.load(k_pages + at, mask=seen, other=0.0)
    page = next_page

    wait_for_previous(OVERLAP)
    raw, queries = norm_and_rotate(
        qkv, w, w_partner, c, s, eps, head, normed, every, width, block_width
    )
    top = tl.full([block_queries], float("-inf"), tl.float32)
    total = tl.zeros([block_queries], tl.float32)
    sums = tl.zeros([block_queries, block_width], tl.float32)
    visible = (key < past)[None, :]
    top, total, sums = online_softmax(queries, keys, values, visible, scale, top, total, sums)
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
        top, total, sums = online_softmax(queries, keys, values, visible, scale, top, total, sums)

    if last > position:
        new_key = tl.sum(tl.where((row == group)[:, None], queries, 0.0).to(tl.float32), axis=0)
        new_value = tl.sum(tl.where((row == group + 1)[:, None], raw, 0.0).to(tl.float32), axis=0)
        to = (slot * kv_heads + kv_head) * width + column
        tl.store(k_pages + to, new_key.to(k_pages.dtype.element_ty), mask=wide)
        tl.store(v_pages + to, new_value.to(v_pages.dtype.element_ty), mask=wide)
        score = tl.sum(queries.to(tl.float32) * new_key[None, :], axis=1) * scale
        new_top = tl.maximum(top, score)
        weight, rescale = tl.exp2(score - new_top), tl.exp2(top - new_top)
        total = total * rescale + weight
        sums = sums * rescale[:, None] + weight[:, None] * new_value[None, :]
        top = new_top

    asked = row < group
    if split_keys >= context:
        to = result + (kv_head * group + row)[:, None] * width + column[None, :]
        answer = (sums / total[:, None]).to(result.dtype.element_ty)
        tl.store(to, answer, mask=asked[:, None] & wide[None, :])
    else:
        at_partial = first_partial(0, 0, kv_head, 1, kv_heads, splits, group) + split * group + row
        store_split(partial, lse, at_partial, top, total, sums, asked, column, wide, block_width)
