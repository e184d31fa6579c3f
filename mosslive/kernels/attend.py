"""From the joint projection to attention's result: one row of each request, or many.

Two operations as one, so that a decode step can do both in one launch and fetch what is in the
pages already while the projection is still being computed.
"""

from torch import Tensor

from mosslive.kernels.paged_attention import LayerPages, PagedBatch, paged_attention
from mosslive.kernels.place_qkv import place_qkv


def attend(
    qkv: Tensor,
    qk_norm: Tensor,
    eps: float,
    cos: Tensor,
    signed_sin: Tensor,
    pages: LayerPages,
    batch: PagedBatch,
) -> Tensor:
    """`place_qkv`, then `paged_attention` of its result: [T, H, D].

    Whether a row sees its own key as it was just computed or as its page holds it is left open: a
    row whose slot lies elsewhere is one that its page has already.
    """
    positions, slots = batch.positions, batch.slots
    q = place_qkv(qkv, qk_norm, eps, cos, signed_sin, positions, slots, pages)
    return paged_attention(q, pages.k, pages.v, batch)
