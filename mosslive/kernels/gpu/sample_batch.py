"""Triton version of `mosslive.kernels.sample_batch`: three launches, no value read by the host.

The first launch finds the largest value of every group of neighbouring ids, with many programs per
row. The last launch samples, with one program per row. A greedy row needs only the best group. With
a small top_k, the group maxima give a bound that at least top_k ids reach and few others do; those
ids are gathered and ranked. For rows with a large top_k or none, the second launch builds a
histogram (`sample_histogram`). Rows that fit neither way, such as hundreds of equal values at the
bound, go through `sample_search`.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import after_previous, overlap
from mosslive.kernels.gpu.philox import uniform
from mosslive.kernels.gpu.sample_candidates import pick_candidate, rank_candidates
from mosslive.kernels.gpu.sample_histogram import (
    build_histogram,
    needs_histogram,
    sample_by_histogram,
)
from mosslive.kernels.gpu.sample_search import history_of, sample_by_search, scaled
from mosslive.kernels.sample_batch import SamplingBatch

_CHUNK = 2048  # ids of one program of the first two launches
_GROUPS = 128  # most groups whose ids are read
_CANDIDATES = 256  # most ids that are ranked
_BUCKETS = 4096  # of a row's histogram
_LARGEST_K = 64  # above it, too many groups would have to be read, even without ties


class _Shape(NamedTuple):
    """Launch settings by vocabulary size; measured on an H200."""

    group: int  # neighbouring ids of one maximum
    warps: int


def sample_batch(logits: Tensor, batch: SamplingBatch) -> Tensor:
    rows, size = logits.shape
    shape = _shape(size)
    _check(logits, batch)
    chunks = triton.cdiv(size, _CHUNK)
    groups = chunks * (_CHUNK // shape.group)
    device = logits.device
    largest = torch.empty(rows, groups, dtype=torch.float32, device=device)
    health = torch.empty(rows, chunks, dtype=torch.float32, device=device)
    scratch = torch.empty(rows, _GROUPS + 2 * _CANDIDATES, dtype=torch.int32, device=device)
    ids = torch.empty(rows, dtype=torch.int64, device=device)
    seen = logits if batch.seen is None else batch.seen.view(torch.uint8)
    histories = (seen, batch.seed if batch.seen_rows is None else batch.seen_rows)
    settings = (batch.legal, batch.greedy.view(torch.uint8), batch.temperature, batch.penalty)
    masses = torch.empty(rows, _BUCKETS, dtype=torch.int64, device=device)
    counts = torch.empty(rows, _BUCKETS, dtype=torch.int32, device=device)
    common = {
        "penalised": batch.seen is not None,
        "indexed": batch.seen_rows is not None,
        "buckets": _BUCKETS,
        "largest_k": _LARGEST_K,
        **overlap(logits),
    }
    _group_maxima[rows, chunks](
        logits,
        *histories,
        *settings,
        batch.top_k,
        largest,
        health,
        masses,
        counts,
        size,
        chunk=_CHUNK,
        group=shape.group,
        **common,
    )
    build_histogram[rows, chunks](
        logits,
        *histories,
        *settings,
        batch.top_k,
        largest,
        masses,
        counts,
        size,
        groups,
        chunk=_CHUNK,
        block_groups=triton.next_power_of_2(groups),
        **common,
    )
    _sample[(rows,)](
        logits,
        *histories,
        *settings,
        batch.top_k,
        batch.top_p,
        batch.seed,
        batch.step,
        batch.channel,
        largest,
        health,
        masses,
        counts,
        scratch,
        ids,
        size,
        groups,
        chunks,
        group=shape.group,
        block_groups=triton.next_power_of_2(groups),
        block_chunks=triton.next_power_of_2(chunks),
        most_groups=_GROUPS,
        most_ids=_CANDIDATES,
        num_warps=shape.warps,
        **common,
    )
    return ids


def _shape(size: int) -> _Shape:
    if size > 2**15:
        return _Shape(64, 8)
    return _Shape(32, 8) if size > 2**12 else _Shape(8, 8)


def _check(logits: Tensor, batch: SamplingBatch) -> None:
    rows = len(logits)
    assert logits.is_contiguous(), "logits must be contiguous"
    assert logits.dtype in (torch.float32, torch.bfloat16, torch.float16), (
        f"logits of {logits.dtype}"
    )
    wanted = {
        torch.int32: (batch.legal, batch.top_k),
        torch.bool: (batch.greedy,),
        torch.float32: (batch.temperature, batch.top_p, batch.penalty),
        torch.int64: (
            batch.seed,
            batch.step,
            *(() if batch.seen_rows is None else (batch.seen_rows,)),
        ),
    }
    for dtype, tensors in wanted.items():
        for tensor in tensors:
            assert tensor.dtype == dtype, f"a setting is {tensor.dtype}; allowed: {dtype}"
            assert tensor.shape == (rows,), f"a setting is {list(tensor.shape)}; allowed: [{rows}]"
            assert tensor.is_contiguous(), "settings must be contiguous"
    if batch.seen is not None:
        assert batch.seen.dtype == torch.bool, "`seen` must be bool"
        assert batch.seen_rows is not None or batch.seen.shape == logits.shape, "no `seen_rows`"
        assert batch.seen.shape[1] == logits.shape[1], "`seen` must be as wide as the logits"
        assert batch.seen.is_contiguous(), "`seen` must be contiguous"


@triton.jit
def _group_maxima(  # type: ignore[no-untyped-def]
    logits,
    seen,
    seen_rows,
    legal,
    greedy,
    temperature,
    penalty,
    top_k,
    largest,
    health,
    masses,
    counts,
    size,
    penalised: tl.constexpr,
    indexed: tl.constexpr,
    chunk: tl.constexpr,
    group: tl.constexpr,
    buckets: tl.constexpr,
    largest_k: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """largest [B, groups]: of each group after penalty and temperature. health [B, chunks]: the
    largest raw logit, NaN if any is NaN."""
    after_previous(OVERLAP)
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    groups: tl.constexpr = chunk // group
    own = piece * groups + tl.arange(0, groups)
    column = own[:, None] * group + tl.arange(0, group)[None, :]
    inside = column < tl.load(legal + row)
    own_temperature = tl.where(tl.load(greedy + row) != 0, 1.0, tl.load(temperature + row))
    x = scaled(
        logits + row * size,
        history_of(seen, seen_rows, row, size, indexed),
        column,
        inside,
        tl.load(penalty + row),
        own_temperature,
        penalised,
    )
    tl.store(largest + row * (tl.num_programs(1) * groups) + own, tl.max(x, axis=1))
    raw = tl.load(logits + row * size + column, mask=inside, other=float("-inf")).to(tl.float32)
    broken = tl.max(tl.max((raw != raw).to(tl.int32), axis=1), axis=0)
    most = tl.max(tl.max(raw, axis=1), axis=0)
    tl.store(health + row * tl.num_programs(1) + piece, tl.where(broken != 0, float("nan"), most))
    if needs_histogram(tl.load(greedy + row), tl.load(top_k + row), largest_k):
        for first in range(piece * 512, buckets, tl.num_programs(1) * 512):
            spot = row * buckets + first + tl.arange(0, 512)
            tl.store(masses + spot, tl.zeros([512], tl.int64))
            tl.store(counts + spot, tl.zeros([512], tl.int32))


@triton.jit(do_not_specialize=["channel"])
def _sample(  # type: ignore[no-untyped-def]
    logits,
    seen,
    seen_rows,
    legal,
    greedy,
    temperature,
    penalty,
    top_k,
    top_p,
    seed,
    step,
    channel,
    largest,
    health,
    masses,
    counts,
    scratch,
    ids,
    size,
    groups,
    chunks,
    penalised: tl.constexpr,
    indexed: tl.constexpr,
    group: tl.constexpr,
    block_groups: tl.constexpr,
    block_chunks: tl.constexpr,
    most_groups: tl.constexpr,
    most_ids: tl.constexpr,
    largest_k: tl.constexpr,
    buckets: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    after_previous(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    # Loaded together: each load on its own would be one more wait.
    plain, end, own_penalty = tl.load(greedy + row), tl.load(legal + row), tl.load(penalty + row)
    own_temperature, k, p = tl.load(temperature + row), tl.load(top_k + row), tl.load(top_p + row)
    own_seed, own_step = tl.load(seed + row), tl.load(step + row)
    piece = tl.arange(0, block_chunks)
    most = tl.load(health + row * chunks + piece, mask=piece < chunks, other=float("-inf"))
    broken = tl.max((most != most).to(tl.int32), axis=0)
    raw_top = tl.max(tl.where(most != most, float("-inf"), most), axis=0)
    if (broken != 0) | (tl.abs(raw_top) == float("inf")):
        tl.store(ids + row, -1)
        return

    seen = history_of(seen, seen_rows, row, size, indexed)
    logits += row * size
    group_id = tl.arange(0, block_groups)
    tops = tl.load(largest + row * groups + group_id, mask=group_id < groups, other=float("-inf"))
    top = tl.max(tops, axis=0)
    if plain != 0:
        best = tl.min(tl.where(tops == top, group_id, block_groups), axis=0)
        column = best * group + tl.arange(0, group)
        x = scaled(logits, seen, column, column < end, own_penalty, 1.0, penalised)
        first = tl.min(tl.where(x == top, column, 2**31 - 1), axis=0)
        tl.store(ids + row, first.to(tl.int64))
        return

    number = uniform(own_seed, own_step, channel)
    chosen = tl.cast(-1, tl.int32)
    own_groups = scratch + row * (most_groups + 2 * most_ids)
    own_bits = own_groups + most_groups
    own_ids = own_bits + most_ids
    if needs_histogram(plain, k, largest_k):
        chosen = sample_by_histogram(
            logits,
            seen,
            masses + row * buckets,
            counts + row * buckets,
            own_bits,
            own_ids,
            end,
            own_penalty,
            own_temperature,
            top,
            k,
            p,
            number,
            buckets,
            most_ids,
            penalised,
            block=2048,
        )
    else:
        # A bound that at least k groups reach, so at least k ids do, and few other groups.
        low = tl.min(tl.where(tops == float("-inf"), float("inf"), tops), axis=0)
        high = top
        reach = tl.sum((tops >= low).to(tl.int32), axis=0)
        enough = tl.maximum(2 * k, 32)
        turn = 0
        while (reach > enough) & (turn < 12):
            middle = low + (high - low) * 0.5
            there = tl.sum((tops >= middle).to(tl.int32), axis=0)
            high = tl.where(there >= k, high, middle)
            reach = tl.where(there >= k, there, reach)
            low = tl.where(there >= k, middle, low)
            turn += 1
        if (reach >= k) & (reach <= most_groups):
            reached = tops >= low
            place = tl.cumsum(reached.to(tl.int32), axis=0) - 1
            tl.store(own_groups + place, group_id, mask=reached)
            tl.debug_barrier()
            slot = tl.arange(0, most_groups)
            source = tl.load(own_groups + slot, mask=slot < reach, other=0)
            column = source[:, None] * group + tl.arange(0, group)[None, :]
            inside = (slot < reach)[:, None] & (column < end)
            x = scaled(logits, seen, column, inside, own_penalty, own_temperature, penalised)
            hit = (inside & (x >= low)).to(tl.int32)
            of_group = tl.sum(hit, axis=1)
            count = tl.sum(of_group, axis=0)
            if count <= most_ids:
                to = tl.cumsum(hit, axis=1) - 1 + (tl.cumsum(of_group, axis=0) - of_group)[:, None]
                tl.store(own_bits + to, x.to(tl.int32, bitcast=True), mask=hit != 0)
                tl.store(own_ids + to, column, mask=hit != 0)
                tl.debug_barrier()
                chosen = _sample_small_k(own_bits, own_ids, count, top, k, p, number, most_ids)
    if chosen < 0:
        chosen = sample_by_search(
            logits, seen, end, own_penalty, own_temperature, top, k, p, number, penalised, block=256
        )
    tl.store(ids + row, chosen.to(tl.int64))


@triton.jit
def _sample_small_k(bits, ids, count, top, k, p, number, most_ids: tl.constexpr):  # type: ignore[no-untyped-def]
    """Samples among `count` gathered ids in any order; they include all that top-k keeps."""
    there, _, own, weight, larger, rank, before = rank_candidates(bits, ids, count, top, most_ids)
    kept = there & (larger < k)  # ties with the k-th stay
    total = tl.sum(tl.where(kept, weight, 0.0), axis=0)
    limit = tl.where(p < 1, p.to(tl.float64) * total, float("inf"))
    kept = kept & ((rank == 0) | (before < limit))
    goal = number * tl.sum(tl.where(kept, weight, 0.0), axis=0)
    return pick_candidate(kept, own, weight, rank, before, goal)
