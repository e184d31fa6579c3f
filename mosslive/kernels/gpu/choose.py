"""Triton twin of `mosslive.kernels.choose`: three launches, no question to the host.

First, many programs per row survey it: the largest value of every group of neighbouring ids. Last,
one program per row draws. A greedy row needs only the best group. With a small top_k the groups
tell a bound that top_k ids reach and few others: those few are gathered and compared each with
each. Rows with a large top_k or none are weighed in between, for `choose_wide`. What fits neither,
as hundreds of equal values at the bound, goes through `choose_any`.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.choose import Draws
from mosslive.kernels.gpu.choose_any import choose_any, history_of, scaled
from mosslive.kernels.gpu.choose_few import compare, land
from mosslive.kernels.gpu.choose_wide import choose_wide, is_wide, weigh
from mosslive.kernels.gpu.overlap import after_previous, overlap
from mosslive.kernels.gpu.philox import uniform

_CHUNK = 2048  # ids one program surveys
_GROUPS = 128  # most groups that are looked into
_CANDIDATES = 256  # most ids that are compared each with each
_BUCKETS = 4096  # of a row's histogram
_LARGEST_K = 64  # beyond it, ties apart, too many groups would have to be looked into


class _Shape(NamedTuple):
    """How a row is cut, by the size of its vocabulary; measured on an H200."""

    group: int  # neighbouring ids
    warps: int


def choose(logits: Tensor, draws: Draws) -> Tensor:
    rows, size = logits.shape
    shape = _shape(size)
    _check(logits, draws)
    chunks = triton.cdiv(size, _CHUNK)
    groups = chunks * (_CHUNK // shape.group)
    device = logits.device
    largest = torch.empty(rows, groups, dtype=torch.float32, device=device)
    health = torch.empty(rows, chunks, dtype=torch.float32, device=device)
    scratch = torch.empty(rows, _GROUPS + 2 * _CANDIDATES, dtype=torch.int32, device=device)
    ids = torch.empty(rows, dtype=torch.int64, device=device)
    seen = logits if draws.seen is None else draws.seen.view(torch.uint8)
    histories = (seen, draws.seed if draws.lines is None else draws.lines)
    settings = (draws.legal, draws.greedy.view(torch.uint8), draws.temperature, draws.penalty)
    masses = torch.empty(rows, _BUCKETS, dtype=torch.int64, device=device)
    counts = torch.empty(rows, _BUCKETS, dtype=torch.int32, device=device)
    common = {
        "penalised": draws.seen is not None,
        "lined": draws.lines is not None,
        "buckets": _BUCKETS,
        "largest_k": _LARGEST_K,
        **overlap(logits),
    }
    _survey[rows, chunks](
        logits,
        *histories,
        *settings,
        draws.top_k,
        largest,
        health,
        masses,
        counts,
        size,
        chunk=_CHUNK,
        group=shape.group,
        **common,
    )
    weigh[rows, chunks](
        logits,
        *histories,
        *settings,
        draws.top_k,
        largest,
        masses,
        counts,
        size,
        groups,
        chunk=_CHUNK,
        block_groups=triton.next_power_of_2(groups),
        **common,
    )
    _pick[(rows,)](
        logits,
        *histories,
        *settings,
        draws.top_k,
        draws.top_p,
        draws.seed,
        draws.step,
        draws.channel,
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


def _check(logits: Tensor, draws: Draws) -> None:
    rows = len(logits)
    assert logits.is_contiguous(), "no gaps"
    assert logits.dtype in (torch.float32, torch.bfloat16, torch.float16), "logits are floats"
    wanted = {
        torch.int32: (draws.legal, draws.top_k),
        torch.bool: (draws.greedy,),
        torch.float32: (draws.temperature, draws.top_p, draws.penalty),
        torch.int64: (draws.seed, draws.step, *(() if draws.lines is None else (draws.lines,))),
    }
    for dtype, tensors in wanted.items():
        for tensor in tensors:
            assert tensor.dtype == dtype, f"{tensor.dtype} where {dtype} belongs"
            assert tensor.shape == (rows,), "one setting for each row"
            assert tensor.is_contiguous(), "no gaps"
    if draws.seen is not None:
        assert draws.seen.dtype == torch.bool, "seen is bool"
        assert draws.lines is not None or draws.seen.shape == logits.shape, "a history for each"
        assert draws.seen.shape[1] == logits.shape[1], "histories of this vocabulary"
        assert draws.seen.is_contiguous(), "no gaps"


@triton.jit
def _survey(  # type: ignore[no-untyped-def]
    logits,
    seen,
    lines,
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
    lined: tl.constexpr,
    chunk: tl.constexpr,
    group: tl.constexpr,
    buckets: tl.constexpr,
    largest_k: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """largest [B, groups]: of each group when scaled. health [B, chunks]: the largest logit as it
    came, NaN where there is one."""
    after_previous(OVERLAP)
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    groups: tl.constexpr = chunk // group
    own = piece * groups + tl.arange(0, groups)
    column = own[:, None] * group + tl.arange(0, group)[None, :]
    inside = column < tl.load(legal + row)
    heat = tl.where(tl.load(greedy + row) != 0, 1.0, tl.load(temperature + row))
    x = scaled(
        logits + row * size,
        history_of(seen, lines, row, size, lined),
        column,
        inside,
        tl.load(penalty + row),
        heat,
        penalised,
    )
    tl.store(largest + row * (tl.num_programs(1) * groups) + own, tl.max(x, axis=1))
    raw = tl.load(logits + row * size + column, mask=inside, other=float("-inf")).to(tl.float32)
    broken = tl.max(tl.max((raw != raw).to(tl.int32), axis=1), axis=0)
    most = tl.max(tl.max(raw, axis=1), axis=0)
    tl.store(health + row * tl.num_programs(1) + piece, tl.where(broken != 0, float("nan"), most))
    if is_wide(tl.load(greedy + row), tl.load(top_k + row), largest_k):
        for first in range(piece * 512, buckets, tl.num_programs(1) * 512):
            spot = row * buckets + first + tl.arange(0, 512)
            tl.store(masses + spot, tl.zeros([512], tl.int64))
            tl.store(counts + spot, tl.zeros([512], tl.int32))


@triton.jit(do_not_specialize=["channel"])
def _pick(  # type: ignore[no-untyped-def]
    logits,
    seen,
    lines,
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
    lined: tl.constexpr,
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
    # All at once: each would cost its own wait later.
    plain, end, fine = tl.load(greedy + row), tl.load(legal + row), tl.load(penalty + row)
    heat, k, p = tl.load(temperature + row), tl.load(top_k + row), tl.load(top_p + row)
    own_seed, own_step = tl.load(seed + row), tl.load(step + row)
    piece = tl.arange(0, block_chunks)
    most = tl.load(health + row * chunks + piece, mask=piece < chunks, other=float("-inf"))
    broken = tl.max((most != most).to(tl.int32), axis=0)
    raw_top = tl.max(tl.where(most != most, float("-inf"), most), axis=0)
    if (broken != 0) | (tl.abs(raw_top) == float("inf")):
        tl.store(ids + row, -1)
        return

    seen = history_of(seen, lines, row, size, lined)
    logits += row * size
    group_id = tl.arange(0, block_groups)
    tops = tl.load(largest + row * groups + group_id, mask=group_id < groups, other=float("-inf"))
    top = tl.max(tops, axis=0)
    if plain != 0:
        best = tl.min(tl.where(tops == top, group_id, block_groups), axis=0)
        column = best * group + tl.arange(0, group)
        x = scaled(logits, seen, column, column < end, fine, 1.0, penalised)
        first = tl.min(tl.where(x == top, column, 2**31 - 1), axis=0)
        tl.store(ids + row, first.to(tl.int64))
        return

    number = uniform(own_seed, own_step, channel)
    chosen = tl.cast(-1, tl.int32)
    own_groups = scratch + row * (most_groups + 2 * most_ids)
    own_bits = own_groups + most_groups
    own_ids = own_bits + most_ids
    if is_wide(plain, k, largest_k):
        chosen = choose_wide(
            logits,
            seen,
            masses + row * buckets,
            counts + row * buckets,
            own_bits,
            own_ids,
            end,
            fine,
            heat,
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
        # A bound that at least k groups reach, so at least k ids do, and not many more groups.
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
            x = scaled(logits, seen, column, inside, fine, heat, penalised)
            hit = (inside & (x >= low)).to(tl.int32)
            of_group = tl.sum(hit, axis=1)
            count = tl.sum(of_group, axis=0)
            if count <= most_ids:
                to = tl.cumsum(hit, axis=1) - 1 + (tl.cumsum(of_group, axis=0) - of_group)[:, None]
                tl.store(own_bits + to, x.to(tl.int32, bitcast=True), mask=hit != 0)
                tl.store(own_ids + to, column, mask=hit != 0)
                tl.debug_barrier()
                chosen = _among_few(own_bits, own_ids, count, top, k, p, number, most_ids)
    if chosen < 0:
        chosen = choose_any(logits, seen, end, fine, heat, top, k, p, number, penalised, block=256)
    tl.store(ids + row, chosen.to(tl.int64))


@triton.jit
def _among_few(bits, ids, count, top, k, p, number, most_ids: tl.constexpr):  # type: ignore[no-untyped-def]
    """The draw among `count` gathered ids, which hold all that top-k keeps, in any order."""
    there, _, own, weight, larger, rank, before = compare(bits, ids, count, top, most_ids)
    kept = there & (larger < k)  # ties with the k-th stay
    total = tl.sum(tl.where(kept, weight, 0.0), axis=0)
    limit = tl.where(p < 1, p.to(tl.float64) * total, float("inf"))
    kept = kept & ((rank == 0) | (before < limit))
    goal = number * tl.sum(tl.where(kept, weight, 0.0), axis=0)
    return land(kept, own, weight, rank, before, goal)
