"""Attention of a few new states over a past that grows in place; each stream has its own position.

Knows no layer and no projection. Invariant: new state i of a stream at position p is stored at
p + i and sees exactly the entries up to there; nothing at or after p + t is read.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def step_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past_k: Tensor,
    past_v: Tensor,
    position: Tensor,
    reach: int | None = None,
) -> Tensor:
    """q, k, v [B, t, H, D], past_k and past_v [B, H, P, D], position int64 [B] → [B, t, H · D]; the
    new keys and values are written to the pasts.

    reach: an upper bound of position + t, at most P; None: P. A stream without space for t more
    (position + t > P) gets finite, meaningless values, and keeps everything before `position`.
    """
    new = q.shape[1]
    rows = torch.arange(len(q), device=q.device)[:, None]
    places = position[:, None] + torch.arange(new, device=q.device)  # [B, t]
    places = places.clamp(max=past_k.shape[2] - 1)
    past_k[rows, :, places] = k
    past_v[rows, :, places] = v
    seen = slice(0, reach or past_k.shape[2])
    keys, values = past_k[:, :, seen], past_v[:, :, seen]
    mask = torch.arange(keys.shape[2], device=q.device) <= places[..., None]  # [B, t, reach]
    y = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, attn_mask=mask[:, None])
    return y.transpose(1, 2).flatten(2)
