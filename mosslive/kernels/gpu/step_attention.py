"""Twin of `kernels.step_attention`: the past is cut into pieces that are read at the same time.

One program takes one piece of one head for a few new states and leaves their weighted sum; a second
kernel joins the pieces. How many pieces there are is read on the device, so that one launch, and
one recorded graph, serves every position. Invariant: float32 inside; entries at and after a
stream's position come from the new states, never from memory.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels import step_attention as definition
from mosslive.kernels.gpu.overlap import after_previous, overlap

_MOST_NEW = 32  # new states up to which reading the past in pieces is faster than the definition
_PIECE = 64  # entries of the past per program
_QUERIES = 4  # new states that share one reading of a piece


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
            raise ValueError("q, k and v must have one shape and stride, heads in one piece each")
    if q.stride(2) != width or width & (width - 1):
        raise ValueError(f"heads of {width} must follow each other, in a power of two")
    if not past_k.is_contiguous() or not past_v.is_contiguous():
        raise ValueError("the pasts must be contiguous")
    if position.shape != (batch,) or position.dtype != torch.int64 or not position.is_contiguous():
        raise ValueError(f"positions must be int64 [{batch}]")
    if any(t.dtype != q.dtype for t in (k, v, past_k, past_v)):
        raise ValueError("all tensors must be of one dtype")
    pieces = triton.cdiv(min(reach or most, most), _PIECE)
    groups = triton.cdiv(new, _QUERIES)
    sums = torch.empty(batch, heads, new, pieces, width, dtype=torch.float32, device=q.device)
    weights = torch.empty(batch, heads, new, pieces, 2, dtype=torch.float32, device=q.device)
    result = q.new_empty(batch, new, heads * width)
    _piece_kernel[(pieces, heads, batch * groups)](
        q, k, v, past_k, past_v, position, sums, weights,
        q.stride(0), q.stride(1), new, most, width**-0.5,
        HEADS=heads, WIDTH=width, PIECE=_PIECE, QUERIES=_QUERIES, num_warps=4, **overlap(q),
    )  # fmt: skip
    _join_kernel[(batch * new, heads)](
        sums, weights, position, result, new, most, pieces,
        HEADS=heads, WIDTH=width, PIECE=_PIECE, MOST=triton.next_power_of_2(pieces),
        num_warps=2, **overlap(q),
    )  # fmt: skip
    return result


@triton.jit(do_not_specialize=("new", "most"))
def _piece_kernel(  # type: ignore[no-untyped-def]
    q_at, k_at, v_at, past_k_at, past_v_at, position_at, sums_at, weights_at,
    q_batch, q_step, new, most, scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, PIECE: tl.constexpr, QUERIES: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    piece, pieces, head = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    groups = (new + QUERIES - 1) // QUERIES
    batch, group = (tl.program_id(2) // groups).to(tl.int64), tl.program_id(2) % groups
    after_previous(OVERLAP)
    begin = tl.load(position_at + batch)
    last = tl.minimum(begin + new, most) - 1  # the last entry any new state sees
    if piece * PIECE <= last:
        entry = piece * PIECE + tl.arange(0, PIECE)
        across = tl.arange(0, WIDTH)
        # What is old lies in memory; what is new comes from the projections, and goes to memory.
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
                # Where the whole piece comes later than this state its weight must be 0, not NaN.
                peak = tl.maximum(tl.max(score, 0), -1e30)
                share = tl.exp(score - peak)
                out = ((batch * HEADS + head) * new + query) * pieces + piece
                tl.store(sums_at + out * WIDTH + across, tl.sum(share[:, None] * values, 0))
                tl.store(weights_at + out * 2, peak)
                tl.store(weights_at + out * 2 + 1, tl.sum(share, 0))


@triton.jit(do_not_specialize=("new", "most", "pieces"))
def _join_kernel(  # type: ignore[no-untyped-def]
    sums_at, weights_at, position_at, result_at, new, most, pieces,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, PIECE: tl.constexpr, MOST: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    batch, query = (tl.program_id(0) // new).to(tl.int64), tl.program_id(0) % new
    head = tl.program_id(1)
    piece, across = tl.arange(0, MOST), tl.arange(0, WIDTH)
    after_previous(OVERLAP)
    last = tl.minimum(tl.load(position_at + batch) + new, most) - 1
    used = (piece * PIECE <= last) & (piece < pieces)
    at = ((batch * HEADS + head) * new + query) * pieces + piece
    peak = tl.load(weights_at + at * 2, used, other=-1e30)
    weight = tl.load(weights_at + at * 2 + 1, used, other=0)
    sums = tl.load(sums_at + at[:, None] * WIDTH + across[None, :], used[:, None], other=0)
    factor = tl.exp(peak - tl.max(peak, 0))
    total = tl.sum(sums * factor[:, None], 0) / tl.sum(weight * factor, 0)
    place = (batch * new + query) * HEADS * WIDTH + head * WIDTH + across
    tl.store(result_at + place, total.to(result_at.dtype.element_ty))
