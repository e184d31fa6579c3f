"""Ranks candidate ids gathered in a small buffer by comparing each with each, without sorting.

Knows nothing of top-k or top-p. The order is the definition's: largest value first, lowest id first
among equals.
"""

import triton
import triton.language as tl

from mosslive.kernels.gpu.sample_search import scaled


@triton.jit
def bucket_of(x, top, buckets: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which step of 1/128 below the largest value; the last holds all the rest."""
    return tl.minimum((top - x) * 128, buckets - 1.0).to(tl.int32)


@triton.jit
def gather(  # type: ignore[no-untyped-def]
    logits,
    seen,
    legal,
    penalty,
    temperature,
    top,
    bucket,
    smallest_kept,
    bits,
    ids,
    buckets: tl.constexpr,
    most_ids: tl.constexpr,
    penalised: tl.constexpr,
    block: tl.constexpr,
):
    """Writes the ids of a bucket, none below `smallest_kept`, and returns how many there are. If
    there are more than `most_ids`, not all are written."""
    tl.debug_barrier()  # what was gathered before has been read
    count = 0
    for first in range(0, legal, block):
        column = first + tl.arange(0, block)
        inside = column < legal
        x = scaled(logits, seen, column, inside, penalty, temperature, penalised)
        hit = inside & (bucket_of(x, top, buckets) == bucket) & (x >= smallest_kept)
        found = tl.sum(hit.to(tl.int32), axis=0)
        if found > 0:
            to = count + tl.cumsum(hit.to(tl.int32), axis=0) - 1
            hit = hit & (to < most_ids)
            tl.store(bits + to, x.to(tl.int32, bitcast=True), mask=hit)
            tl.store(ids + to, column, mask=hit)
        count += found
    tl.debug_barrier()
    return count


@triton.jit
def rank_candidates(bits, ids, count, top, most_ids: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of each gathered id: whether it is there, its value, id and weight e^(value - top), how many
    values are larger, its rank, and the weight of all before it; [most_ids] each."""
    slot = tl.arange(0, most_ids)
    there = slot < count
    x = tl.load(bits + slot, mask=there, other=0).to(tl.float32, bitcast=True)
    own = tl.load(ids + slot, mask=there, other=0)
    weight = tl.where(there, tl.exp(x.to(tl.float64) - top.to(tl.float64)), 0.0)
    larger = tl.zeros([most_ids], tl.int32)
    rank = tl.zeros([most_ids], tl.int32)
    before = tl.zeros([most_ids], tl.float64)
    for first in range(0, count, 32):
        other = first + tl.arange(0, 32)
        valid = other < count
        y = tl.load(bits + other, mask=valid, other=0).to(tl.float32, bitcast=True)
        other_id = tl.load(ids + other, mask=valid, other=0)
        y_weight = tl.exp(y.to(tl.float64) - top.to(tl.float64))
        more = (y[None, :] > x[:, None]) & valid[None, :]
        equal = (y[None, :] == x[:, None]) & valid[None, :]
        earlier = more | (equal & (other_id[None, :] < own[:, None]))
        larger += tl.sum(more.to(tl.int32), axis=1)
        rank += tl.sum(earlier.to(tl.int32), axis=1)
        before += tl.sum(tl.where(earlier, y_weight[None, :], 0.0), axis=1)
    return there, x, own, weight, larger, rank, before


@triton.jit
def pick_candidate(kept, own, weight, rank, before, goal):  # type: ignore[no-untyped-def]
    """The first id whose sum of weights passes `goal`; the last positive if rounding ran out."""
    passed = tl.sum((kept & (before + weight <= goal)).to(tl.int32), axis=0)
    positive = tl.sum((kept & (weight > 0)).to(tl.int32), axis=0)
    wanted = tl.minimum(passed, tl.maximum(positive, 1) - 1)
    return tl.sum(tl.where(kept & (rank == wanted), own, 0), axis=0)
