"""From the joint QKV projection to the result of attention, for any number of rows.

`norm_rope_cache` and `paged_attention` as one operation, so that a decode step can do both in one
launch and fetch what is in the pages already while the projection is still being computed.
"""

from torch import Tensor

from mosslive.kernels.norm_rope_cache import norm_rope_cache
from mosslive.kernels.paged_attention import LayerPages, PagedBatch, paged_attention


def attend(
    qkv: Tensor,
    qk_norm: Tensor,
    eps: float,
    cos: Tensor,
    signed_sin: Tensor,
    pages: LayerPages,
    batch: PagedBatch,
) -> Tensor:
    """`norm_rope_cache`, then `paged_attention` of its result: [T, H, D].

    A row may see its own key as computed here or as its page holds it. The two differ only for a
    row whose slot is outside its pages, and then the page holds the row already.
    """
    positions, slots = batch.positions, batch.slots
    q = norm_rope_cache(qkv, qk_norm, eps, cos, signed_sin, positions, slots, pages)
    return paged_attention(q, pages.k, pages.v, batch)
