"""Triton twin of `mosslive.kernels.place_qkv`: one launch, every number touched once.

A program takes a few heads of one row. Each product is rounded where the definition rounds it,
which needs `enable_fp_fusion=False`: otherwise the assembler joins a product and a sum into one
rounding, and an eighth of the results differ.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import after_previous, overlap
from mosslive.kernels.paged_attention import LayerPages

_HEADS = 8  # of one program: a tile of 2 kB


@triton.jit
def _place_qkv(  # type: ignore[no-untyped-def]
    qkv,
    qk_norm,
    eps,
    cos,
    signed_sin,
    positions,
    slots,
    q,
    k_pages,
    v_pages,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    width: tl.constexpr,
    block_heads: tl.constexpr,
    block_width: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    dtype = q.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * block_heads + tl.arange(0, block_heads)
    column = tl.arange(0, block_width)
    partner = (column + width // 2) % width  # the other half, which rotation mixes in
    wide = column[None, :] < width
    every = (head[:, None] < heads + 2 * kv_heads) & wide
    normed = (head[:, None] < heads + kv_heads) & wide

    weight = qk_norm + head[:, None] * width
    w = tl.load(weight + column[None, :], mask=normed, other=0.0).to(tl.float32)
    w_partner = tl.load(weight + partner[None, :], mask=normed, other=0.0).to(tl.float32)
    after_previous(OVERLAP)
    source = qkv + (row * (heads + 2 * kv_heads) + head[:, None]) * width
    x = tl.load(source + column[None, :], mask=every, other=0.0)
    x_partner = tl.load(source + partner[None, :], mask=normed, other=0.0)
    position, slot = tl.load(positions + row), tl.load(slots + row)
    place = position * width + column
    c = tl.load(cos + place, mask=column < width, other=0.0).to(tl.float32)[None, :]
    s = tl.load(signed_sin + place, mask=column < width, other=0.0).to(tl.float32)[None, :]

    value = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=1) / width + eps)[:, None]
    y = ((value * scale).to(dtype).to(tl.float32) * w).to(dtype).to(tl.float32)
    y_partner = (x_partner.to(tl.float32) * scale).to(dtype).to(tl.float32)
    y_partner = (y_partner * w_partner).to(dtype).to(tl.float32)
    kept = (y * c).to(dtype).to(tl.float32)
    mixed = (y_partner * s).to(dtype).to(tl.float32)
    turned = (kept + mixed).to(dtype)

    q_place = (row * heads + head[:, None]) * width + column[None, :]
    tl.store(q + q_place, turned, mask=(head[:, None] < heads) & wide)
    k_place = (slot * kv_heads + head[:, None] - heads) * width + column[None, :]
    tl.store(k_pages + k_place, turned, mask=(head[:, None] >= heads) & normed)
    v_place = k_place - kv_heads * width
    tl.store(v_pages + v_place, x, mask=(head[:, None] >= heads + kv_heads) & every)


def place_qkv(
    qkv: Tensor,
    qk_norm: Tensor,
    eps: float,
    cos: Tensor,
    signed_sin: Tensor,
    positions: Tensor,
    slots: Tensor,
    pages: LayerPages,
) -> Tensor:
    rows, (kv_heads, width) = len(qkv), pages.k.shape[-2:]
    heads = len(qk_norm) - kv_heads
    total = heads + 2 * kv_heads
    assert qkv.shape == (rows, total * width), "q, k and v of every row side by side"
    assert pages.k.shape == pages.v.shape, "a value for every key"
    assert qk_norm.shape[1] == cos.shape[1] == width, "one width of heads"
    assert cos.shape == signed_sin.shape, "a sine for every cosine"
    for tensor in (qkv, qk_norm, cos, signed_sin, *pages):
        assert tensor.dtype == qkv.dtype, "one dtype"
        assert tensor.is_contiguous(), "no gaps"
    for index in (positions, slots):
        assert index.dtype == torch.int64, "indices are int64"
        assert index.shape == (rows,), "one index for each row"
        assert index.is_contiguous(), "no gaps"
    q = torch.empty(rows, heads, width, device=qkv.device, dtype=qkv.dtype)
    _place_qkv[rows, triton.cdiv(total, _HEADS)](
        qkv,
        qk_norm,
        eps,
        cos,
        signed_sin,
        positions,
        slots,
        q,
        pages.k,
        pages.v,
        heads=heads,
        kv_heads=kv_heads,
        width=width,
        block_heads=_HEADS,
        block_width=triton.next_power_of_2(width),
        enable_fp_fusion=False,
        **overlap(qkv),
    )
    return q
