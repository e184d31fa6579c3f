"""From the joint QKV projection to attention's inputs: norm and rotate q and k, cache k and v.

Between the projection and attention a layer does five small steps on the same few kilobytes. Here
they are one operation, so that a GPU touches the data once. Knows nothing of requests: a row has
its position and the slot for its key and value.
"""

from torch import Tensor

from mosslive.kernels.paged_attention import LayerPages, write_pages
from mosslive.kernels.rms_norm import rms_norm
from mosslive.kernels.rotary import rotate


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
    """q = rotate(rms_norm(q)), k = rotate(rms_norm(k)), pages[slots] = k, v; returns q [T, H, D].

    qkv [T, (H + 2·H_kv)·D]: q, k, v side by side. qk_norm [H + H_kv, D]: a weight per head of q,
    then of k. cos, signed_sin [P, D]: the tables of a `RotaryTable`. positions, slots [T] int64.
    The norm comes before the rotation, and each is rounded as its own definition says.
    """
    kv_heads, width = pages.k.shape[-2:]
    heads = len(qk_norm) - kv_heads
    rows = qkv.view(len(qkv), heads + 2 * kv_heads, width)
    angles = (table.index_select(0, positions)[:, None] for table in (cos, signed_sin))
    qk = rotate(rms_norm(rows[:, : heads + kv_heads], qk_norm, eps), *angles)
    write_pages(pages.k, qk[:, heads:], slots)
    write_pages(pages.v, rows[:, heads + kv_heads :], slots)
    return qk[:, :heads]
