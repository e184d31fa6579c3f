"""Samples one row whose top_k is off or large, by a histogram of its probability over its values.

`build_histogram`, with many programs per row, adds every id's weight to the bucket of its value.
Sums over the buckets then give the bucket in which a search ends, and only that bucket's ids are
read. Weights are added as integers, so that the order of the atomic adds does not change the sum.
"""

import triton
import triton.language as tl

from mosslive.kernels.gpu.overlap import after_previous
from mosslive.kernels.gpu.sample_candidates import (
    bucket_of,
    gather,
    pick_candidate,
    rank_candidates,
)
from mosslive.kernels.gpu.sample_search import history_of, scaled

_UNIT = tl.constexpr(2.0**45)  # of a weight of 1: 2¹⁸ ids of it still fit into 63 bits


@triton.jit
def needs_histogram(greedy, top_k, largest_k: tl.constexpr):  # type: ignore[no-untyped-def]
    return (greedy == 0) & ((top_k <= 0) | (top_k > largest_k))


@triton.jit
def build_histogram(  # type: ignore[no-untyped-def]
    logits,
    seen,
    seen_rows,
    legal,
    greedy,
    temperature,
    penalty,
    top_k,
    largest,
    masses,
    counts,
    size,
    groups,
    penalised: tl.constexpr,
    indexed: tl.constexpr,
    chunk: tl.constexpr,
    block_groups: tl.constexpr,
    buckets: tl.constexpr,
    largest_k: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """masses int64, counts int32 [B, buckets], zero before: of the ids in each bucket."""
    after_previous(OVERLAP)
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if not needs_histogram(tl.load(greedy + row), tl.load(top_k + row), largest_k):
        return
    group = tl.arange(0, block_groups)
    tops = tl.load(largest + row * groups + group, mask=group < groups, other=float("-inf"))
    top = tl.max(tops, axis=0)
    column = piece * chunk + tl.arange(0, chunk)
    inside = column < tl.load(legal + row)
    own_temperature, own_penalty = tl.load(temperature + row), tl.load(penalty + row)
    own = history_of(seen, seen_rows, row, size, indexed)
    x = scaled(logits + row * size, own, column, inside, own_penalty, own_temperature, penalised)
    bucket = bucket_of(x, top, buckets)
    weight = tl.exp(x.to(tl.float64) - top.to(tl.float64))
    mass = (weight * _UNIT + 0.5).to(tl.int64)
    tl.atomic_add(masses + row * buckets + bucket, mass, mask=inside, sem="relaxed")
    if tl.load(top_k + row) > 0:
        tl.atomic_add(counts + row * buckets + bucket, 1, mask=inside, sem="relaxed")


@triton.jit
def sample_by_histogram(  # type: ignore[no-untyped-def]
    logits,
    seen,
    masses,
    counts,
    bits,
    ids,
    legal,
    penalty,
    temperature,
    top,
    top_k,
    top_p,
    number,
    buckets: tl.constexpr,
    most_ids: tl.constexpr,
    penalised: tl.constexpr,
    block: tl.constexpr,
):
    """The sampled id, or -1 where a bucket holds too many ids to compare."""
    spot = tl.arange(0, buckets)
    sums = tl.cumsum(tl.load(masses + spot), axis=0).to(tl.float64) / _UNIT
    total = tl.max(sums, axis=0)
    smallest_kept = tl.cast(float("-inf"), tl.float32)  # of top-k
    chosen = tl.cast(-1, tl.int32)
    fits = tl.cast(1, tl.int32)
    for phase in range(3):  # top-k, top-p, sampling
        wanted = ((phase == 0) & (top_k > 0) & (top_k < legal)) | ((phase == 1) & (top_p < 1))
        if (wanted | (phase == 2)) & (fits != 0):
            goal = total * tl.where(phase == 1, top_p.to(tl.float64), number)
            if phase == 0:
                reached = tl.cumsum(tl.load(counts + spot), axis=0)
                at = tl.min(tl.where(reached >= top_k, spot, buckets - 1), axis=0)
                over = tl.sum(tl.where(spot == at - 1, reached, 0), axis=0)
            else:
                ends = tl.where(phase == 1, sums >= goal, sums > goal)
                at = tl.min(tl.where(ends, spot, buckets - 1), axis=0)
                over = 0
            above = tl.sum(tl.where(spot == at - 1, sums, 0.0), axis=0)
            count = gather(
                logits,
                seen,
                legal,
                penalty,
                temperature,
                top,
                at,
                smallest_kept,
                bits,
                ids,
                buckets,
                most_ids,
                penalised,
                block,
            )
            fits = (count <= most_ids).to(tl.int32)
            if fits != 0:
                there, x, own, weight, larger, rank, before = rank_candidates(
                    bits, ids, count, top, most_ids
                )
                if phase == 2:
                    chosen = pick_candidate(there, own, weight, rank, above + before, goal)
                else:
                    by_count = over + larger < top_k
                    by_mass = (rank == 0) | (above + before < goal)
                    kept = there & tl.where(phase == 0, by_count, by_mass)
                    total = above + tl.sum(tl.where(kept, weight, 0.0), axis=0)
                    if phase == 0:
                        smallest_kept = tl.min(tl.where(kept, x, float("inf")), axis=0)
    return chosen
