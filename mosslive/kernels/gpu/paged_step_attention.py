"""Triton version of `kernels.paged_step_attention`.

One kernel stores the new keys and values. In the next, a program takes every n-th page of one head
of a row; n falls as the rows get more, so that few rows still fill the device and many rows start
few programs. A last kernel merges the n partial sums. Positions and pages are read on the device:
one CUDA graph serves all. Invariant: float32 inside.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import after_previous, overlap
from mosslive.kernels.gpu.step_attention import merge_kernel

_PROGRAMS = 1024  # enough to keep an H200 busy
_LEAST_STATES = 16  # rows of a matrix product on the device; the new states are padded to them


def paged_step_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past_k: Tensor,
    past_v: Tensor,
    pages: Tensor,
    position: Tensor,
) -> Tensor:
    """q, k, v [R, t, H, D] with equal strides, pasts [pages, H, S, D] contiguous → [R, t, H · D].
    t, D and S are powers of two."""
    rows, new, heads, width = q.shape
    size, most = past_k.shape[2], pages.shape[1]
    if past_k.shape[1:] != (heads, size, width) or past_v.shape != past_k.shape:
        raise ValueError(f"pasts {list(past_k.shape)}, {list(past_v.shape)} for {list(q.shape)}")
    for fresh in (q, k, v):
        if fresh.shape != q.shape or fresh.stride() != q.stride() or fresh.stride(3) != 1:
            raise ValueError("q, k and v must have one shape and stride, each head contiguous")
    if q.stride(2) != width or any(n & (n - 1) for n in (new, width, size)):
        raise ValueError(f"{new} states, heads of {width}, pages of {size}; powers of two needed")
    if not past_k.is_contiguous() or not past_v.is_contiguous():
        raise ValueError("the pasts must be contiguous")
    if position.shape != (rows,) or position.dtype != torch.int64 or not position.is_contiguous():
        raise ValueError(f"positions must be int64 [{rows}]")
    if pages.shape[0] != rows or pages.dtype != torch.int32 or pages.stride(1) != 1:
        raise ValueError(f"pages must be int32 [{rows}, N], each row contiguous")
    if any(t.dtype != q.dtype for t in (k, v, past_k, past_v)):
        raise ValueError("all tensors must be of one dtype")
    splits = min(max(_PROGRAMS // (heads * rows), 1), most)
    sums = torch.empty(rows, heads, new, splits, width, dtype=torch.float32, device=q.device)
    weights = torch.empty(rows, heads, new, splits, 2, dtype=torch.float32, device=q.device)
    result = q.new_empty(rows, new, heads * width)
    _store_kernel[(rows, new)](
        k, v, past_k, past_v, pages, position, q.stride(0), q.stride(1), pages.stride(0),
        HEADS=heads, WIDTH=width, SIZE=size, MOST=triton.next_power_of_2(heads * width),
        num_warps=4, **overlap(q),
    )  # fmt: skip
    _attend_kernel[(splits, heads, rows)](
        q, past_k, past_v, pages, position, sums, weights,
        q.stride(0), q.stride(1), pages.stride(0), width**-0.5,
        NEW=new, STATES=max(_LEAST_STATES, new), HEADS=heads, WIDTH=width, SIZE=size,
        num_warps=4, **overlap(q),
    )  # fmt: skip
    merge_kernel[(rows * new, heads)](
        sums, weights, position, result, new, most * size, splits,
        HEADS=heads, WIDTH=width, SPLIT=size, MOST=triton.next_power_of_2(splits),
        num_warps=2, **overlap(q),
    )  # fmt: skip
    return result


@triton.jit
def _store_kernel(  # type: ignore[no-untyped-def]
    k_at, v_at, past_k_at, past_v_at, pages_at, position_at, q_row, q_step, pages_row,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr, MOST: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    row, step = tl.program_id(0).to(tl.int64), tl.program_id(1)
    across = tl.arange(0, MOST)
    inside = across < HEADS * WIDTH
    after_previous(OVERLAP)
    position = tl.load(position_at + row) + step
    page = tl.load(pages_at + row * pages_row + position // SIZE).to(tl.int64)
    given = row * q_row + step * q_step + across
    place = (page * HEADS + across // WIDTH) * SIZE + position % SIZE
    place = place * WIDTH + across % WIDTH
    tl.store(past_k_at + place, tl.load(k_at + given, inside), inside)
    tl.store(past_v_at + place, tl.load(v_at + given, inside), inside)


@triton.jit
def _attend_kernel(  # type: ignore[no-untyped-def]
    q_at, past_k_at, past_v_at, pages_at, position_at, sums_at, weights_at,
    q_row, q_step, pages_row, scale,
    NEW: tl.constexpr, STATES: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    SIZE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    split, splits, head = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    state, across, key = tl.arange(0, STATES), tl.arange(0, WIDTH), tl.arange(0, SIZE)
    after_previous(OVERLAP)
    begin = tl.load(position_at + row).to(tl.int32)
    end = begin + NEW
    real = state < NEW
    given = row * q_row + state[:, None] * q_step + head * WIDTH + across[None, :]
    q = tl.load(q_at + given, real[:, None], other=0).to(tl.float32) * scale  # [STATES, WIDTH]
    peak = tl.full((STATES,), -1e30, tl.float32)
    weight = tl.zeros((STATES,), tl.float32)
    total = tl.zeros((STATES, WIDTH), tl.float32)
    for first in range(split * SIZE, end, splits * SIZE):
        page = tl.load(pages_at + row * pages_row + first // SIZE).to(tl.int64)
        entry = first + key
        there = (page * HEADS + head) * SIZE * WIDTH + key[:, None] * WIDTH + across[None, :]
        used = (entry < end)[:, None]
        keys = tl.load(past_k_at + there, used, other=0).to(tl.float32)
        values = tl.load(past_v_at + there, used, other=0).to(tl.float32)
        score = tl.dot(q, tl.trans(keys), input_precision="ieee")  # [STATES, SIZE]
        score = tl.where(entry[None, :] <= (begin + state)[:, None], score, float("-inf"))
        # Where a state sees none of these, its weight must be 0, not NaN.
        higher = tl.maximum(peak, tl.max(score, 1))
        share = tl.exp(score - higher[:, None])
        fade = tl.exp(peak - higher)
        weight = weight * fade + tl.sum(share, 1)
        total = total * fade[:, None] + tl.dot(share, values, input_precision="ieee")
        peak = higher
    out = ((row * HEADS + head) * NEW + state) * splits + split
    tl.store(sums_at + out[:, None] * WIDTH + across[None, :], total, real[:, None])
    tl.store(weights_at + out * 2, peak, real)
    tl.store(weights_at + out * 2 + 1, weight, real)
