"""Triton version of `mosslive.kernels.norm_rope_cache`: one launch, every number touched once.

A program takes a few heads of one row. Each product is rounded where the definition rounds it,
which needs `enable_fp_fusion=False`: otherwise the assembler fuses a product and a sum into one
rounding, and an eighth of the results differ.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mosslive.kernels.gpu.overlap import overlap, release_next, wait_for_previous
from mosslive.kernels.paged_attention import LayerPages

_HEADS = 8  # of one program: a tile of 2 kB


@triton.jit
def load_rotation(  # type: ignore[no-untyped-def]
    qk_norm, cos, signed_sin, position, head, normed, width: tl.constexpr, block_width: tl.constexpr
):
    """What `norm_and_rotate` needs besides the row: norm weights of some heads and the rotation of
    a position, [heads, block_width] each, where `normed`. None of it is computed in this step."""
    column = tl.arange(0, block_width)[None, :]
    partner = (column + width // 2) % width  # the other half, which the rotation mixes in
    weight = qk_norm + head[:, None] * width
    w = tl.load(weight + column, mask=normed, other=0.0).to(tl.float32)
    w_partner = tl.load(weight + partner, mask=normed, other=0.0).to(tl.float32)
    # Loaded for each head again, from the cache: broadcasting one row would need shared memory.
    place = position * width + column + head[:, None] * 0
    c = tl.load(cos + place, mask=normed, other=0.0).to(tl.float32)
    s = tl.load(signed_sin + place, mask=normed, other=0.0).to(tl.float32)
    return w, w_partner, c, s


@triton.jit
def norm_and_rotate(  # type: ignore[no-untyped-def]
    source, w, w_partner, c, s, eps, head, normed, every,
    width: tl.constexpr, block_width: tl.constexpr,
):  # fmt: skip
    """Some heads of the row at `source`: unchanged (where `every`), and after norm and rotation
    (where `normed`)."""
    dtype = source.dtype.element_ty
    column = tl.arange(0, block_width)[None, :]
    partner = (column + width // 2) % width
    own = source + head[:, None] * width
    x = tl.load(own + column, mask=every, other=0.0)
    x_partner = tl.load(own + partner, mask=normed, other=0.0)
    value = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=1) / width + eps)[:, None]
    y = ((value * scale).to(dtype).to(tl.float32) * w).to(dtype).to(tl.float32)
    y_partner = (x_partner.to(tl.float32) * scale).to(dtype).to(tl.float32)
    y_partner = (y_partner * w_partner).to(dtype).to(tl.float32)
    kept = (y * c).to(dtype).to(tl.float32)
    mixed = (y_partner * s).to(dtype).to(tl.float32)
    return x, (kept + mixed).to(dtype)


@triton.jit
def _norm_rope_cache(  # type: ignore[no-untyped-def]
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
    release_next(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * block_heads + tl.arange(0, block_heads)
    column = tl.arange(0, block_width)
    wide = column[None, :] < width
    every = (head[:, None] < heads + 2 * kv_heads) & wide
    normed = (head[:, None] < heads + kv_heads) & wide

    position, slot = tl.load(positions + row), tl.load(slots + row)
    w, w_partner, c, s = load_rotation(
        qk_norm, cos, signed_sin, position, head, normed, width, block_width
    )
    wait_for_previous(OVERLAP)
    source = qkv + row * ((heads + 2 * kv_heads) * width)
    x, rotated = norm_and_rotate(
        source, w, w_partner, c, s, eps, head, normed, every, width, block_width
    )

    q_place = (row * heads + head[:, None]) * width + column[None, :]
    tl.store(q + q_place, rotated, mask=(head[:, None] < heads) & wide)
    k_place = (slot * kv_heads + head[:, None] - heads) * width + column[None, :]
    tl.store(k_pages + k_place, rotated, mask=(head[:, None] >= heads) & normed)
    v_place = k_place - kv_heads * width
    tl.store(v_pages + v_place, x, mask=(head[:, None] >= heads + kv_heads) & every)


def norm_rope_cache(
    qkv: Tensor,
    qk_norm: Tensor,
    eps: float,
    cos: Tensor,
    signed_sin: Tensor,
    positions: Tensor,
    slots: Tensor,
    pages: LayerPages,
) -> Tensor:
    check_qkv(qkv, qk_norm, cos, signed_sin, positions, slots, pages)
    rows, (kv_heads, width) = len(qkv), pages.k.shape[-2:]
    heads = len(qk_norm) - kv_heads
    q = torch.empty(rows, heads, width, device=qkv.device, dtype=qkv.dtype)
    _norm_rope_cache[rows, triton.cdiv(heads + 2 * kv_heads, _HEADS)](
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


def check_qkv(
    qkv: Tensor,
    qk_norm: Tensor,
    cos: Tensor,
    signed_sin: Tensor,
    positions: Tensor,
    slots: Tensor,
    pages: LayerPages,
) -> None:
    rows, (kv_heads, width) = len(qkv), pages.k.shape[-2:]
    total = len(qk_norm) + kv_heads
    assert qkv.shape == (rows, total * width), "qkv must be [T, (H + 2·H_kv)·D]"
    assert pages.k.shape == pages.v.shape, "k and v pages must have one shape"
    assert qk_norm.shape[1] == cos.shape[1] == width, "qk_norm and cos must be as wide as a head"
    assert cos.shape == signed_sin.shape, "cos and signed_sin must have one shape"
    for tensor in (qkv, qk_norm, cos, signed_sin, *pages):
        assert tensor.dtype == qkv.dtype, "all tensors must have one dtype"
        assert tensor.is_contiguous(), "all tensors must be contiguous"
    for index in (positions, slots):
        assert index.dtype == torch.int64, "positions and slots must be int64"
        assert index.shape == (rows,), "positions and slots must be [T]"
        assert index.is_contiguous(), "positions and slots must be contiguous"
