"""Triton version of `kernels.step_attention`: split-KV attention over the stream's past.

One program takes one split of one head for a few new states and stores their weighted sum; a second
kernel merges the splits. The number of splits is read on the device, so that one launch, and one
CUDA graph, serves every position. Invariant: float32 inside; entries at and after a stream's
position come from the new states, never from memory.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels import step_attention as definition
from mosslive.kernels.gpu.overlap import after_previous, overlap

_MOST_NEW = 32  # new states up to which reading the past in splits is faster than the definition
_SPLIT = 64  # entries of the past per program
_QUERIES = 4  # new states that share one reading of a split


def step_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past_k: Tensor,
    past_v: Tensor,
    position: Tensor,
    reach: int | None = None,
) -> Tensor:
    """q, k, v [B, t, H, D] with equal strides, pasts [B, H, P, D] contiguous → [B, t, H · D]."""
    batch, new, heads, width = q.shape
    if new > _MOST_NEW:
        return definition.step_attention(q, k, v, past_k, past_v, position, reach)
    most = past_k.shape[2]
    if past_k.shape != (batch, heads, most, width) or past_v.shape != past_k.shape:
        raise ValueError(f"pasts {list(past_k.shape)}, {list(past_v.shape)} for {list(q.shape)}")
    for fresh in (q, k, v):
        if fresh.shape != q.shape or fresh.stride() != q.stride() or fresh.stride(3) != 1:
            raise ValueError("q, k and v must have one shape and stride, each head contiguous")
    if q.stride(2) != width or width & (width - 1):
        raise ValueError(f"heads of {width} must follow each other, in a power of two")
    if not past_k.is_contiguous() or not past_v.is_contiguous():
        raise ValueError("the pasts must be contiguous")
    if position.shape != (batch,) or position.dtype != torch.int64 or not position.is_contiguous():
        raise ValueError(f"positions must be int64 [{batch}]")
    if any(t.dtype != q.dtype for t in (k, v, past_k, past_v)):
        raise ValueError("all tensors must be of one dtype")
    splits = triton.cdiv(min(reach or most, most), _SPLIT)
    groups = triton.cdiv(new, _QUERIES)
    sums = torch.empty(batch, heads, new, splits, width, dtype=torch.float32, device=q.device)
    weights = torch.empty(batch, heads, new, splits, 2, dtype=torch.float32, device=q.device)
    result = q.new_empty(batch, new, heads * width)
    _split_kernel[(splits, heads, batch * groups)](
        q, k, v, past_k, past_v, position, sums, weights,
        q.stride(0), q.stride(1), new, most, width**-0.5,
        HEADS=heads, WIDTH=width, SPLIT=_SPLIT, QUERIES=_QUERIES, num_warps=4, **overlap(q),
    )  # fmt: skip
    merge_kernel[(batch * new, heads)](
        sums, weights, position, result, new, most, splits,
        HEADS=heads, WIDTH=width, SPLIT=_SPLIT, MOST=triton.next_power_of_2(splits),
        num_warps=2, **overlap(q),
    )  # fmt: skip
    return result


@triton.jit(do_not_specialize=("new", "most"))
def _split_kernel(  # type: ignore[no-untyped-def]
    q_at, k_at, v_at, past_k_at, past_v_at, position_at, sums_at, weights_at,
    q_batch, q_step, new, most, scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, SPLIT: tl.constexpr, QUERIES: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    split, splits, head = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    groups = (new + QUERIES - 1) // QUERIES
    batch, group = (tl.program_id(2) // groups).to(tl.int64), tl.program_id(2) % groups
    after_previous(OVERLAP)
    begin = tl.load(position_at + batch)
    last = tl.minimum(begin + new, most) - 1  # the last entry any new state sees
    if split * SPLIT <= last:
        entry = split * SPLIT + tl.arange(0, SPLIT)
        across = tl.arange(0, WIDTH)
        # Old entries are in memory; new ones come from the projections and are stored.
        old, fresh = (entry < begin)[:, None], ((entry >= begin) & (entry <= last))[:, None]
        stored = (batch * HEADS + head) * most * WIDTH + entry[:, None] * WIDTH + across[None, :]
        given = batch * q_batch + (entry - begin)[:, None] * q_step + head * WIDTH + across[None, :]
        keys = tl.load(past_k_at + stored, old, other=0)
        values = tl.load(past_v_at + stored, old, other=0)
        keys += tl.load(k_at + given, fresh, other=0)
        values += tl.load(v_at + given, fresh, other=0)
        if group == 0:
            tl.store(past_k_at + stored, keys, fresh)
            tl.store(past_v_at + stored, values, fresh)
        keys, values = keys.to(tl.float32), values.to(tl.float32)
        for i in tl.static_range(QUERIES):
            query = group * QUERIES + i
            if query < new:
                at = q_at + batch * q_batch + query * q_step + head * WIDTH + across
                score = tl.sum(keys * (tl.load(at).to(tl.float32) * scale)[None, :], 1)
                place = tl.minimum(begin + query, most - 1)
                score = tl.where(entry <= place, score, float("-inf"))
                # If all of the split is later than this state, its weight must be 0, not NaN.
                peak = tl.maximum(tl.max(score, 0), -1e30)
                share = tl.exp(score - peak)
                out = ((batch * HEADS + head) * new + query) * splits + split
                tl.store(sums_at + out * WIDTH + across, tl.sum(share[:, None] * values, 0))
                tl.store(weights_at + out * 2, peak)
                tl.store(weights_at + out * 2 + 1, tl.sum(share, 0))


@triton.jit(do_not_specialize=("new", "most", "splits"))
def merge_kernel(  # type: ignore[no-untyped-def]
    sums_at, weights_at, position_at, result_at, new, most, splits,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, SPLIT: tl.constexpr, MOST: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    batch, query = (tl.program_id(0) // new).to(tl.int64), tl.program_id(0) % new
    head = tl.program_id(1)
    split, across = tl.arange(0, MOST), tl.arange(0, WIDTH)
    after_previous(OVERLAP)
    last = tl.minimum(tl.load(position_at + batch) + new, most) - 1
    used = (split * SPLIT <= last) & (split < splits)
    at = ((batch * HEADS + head) * new + query) * splits + split
    peak = tl.load(weights_at + at * 2, used, other=-1e30)
    weight = tl.load(weights_at + at * 2 + 1, used, other=0)
    sums = tl.load(sums_at + at[:, None] * WIDTH + across[None, :], used[:, None], other=0)
    factor = tl.exp(peak - tl.max(peak, 0))
    total = tl.sum(sums * factor[:, None], 0) / tl.sum(weight * factor, 0)
    place = (batch * new + query) * HEADS * WIDTH + head * WIDTH + across
    tl.store(result_at + place, total.to(result_at.dtype.element_ty))
