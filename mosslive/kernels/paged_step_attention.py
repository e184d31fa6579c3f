"""Attention of a few new states of each row over pages of keys and values.

A row is a piece of one stream: its new states, their position, and the stream's page table. Several
rows may belong to one stream. Knows no layer and no allocation. Invariant: the keys and values of
all rows are stored before any row reads, and a state sees the entries up to its own position.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def paged_step_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past_k: Tensor,
    past_v: Tensor,
    pages: Tensor,
    position: Tensor,
) -> Tensor:
    """q, k, v [R, t, H, D], past_k and past_v [pages, H, S, D], pages int32 [R, N], position int64
    [R] → [R, t, H · D]; the new keys and values are written to the pages.

    Position p of a row is entry p % S of page `pages[row, p // S]`. t must divide S and every
    position: the new states of a row lie in one page. Position + t must not exceed N · S.
    """
    size, new = past_k.shape[2], q.shape[1]
    places = position[:, None] + torch.arange(new, device=q.device)  # [R, t]
    held = pages.gather(1, places // size)
    past_k[held, :, places % size] = k
    past_v[held, :, places % size] = v
    keys, values = (past[pages].transpose(1, 2).flatten(2, 3) for past in (past_k, past_v))
    mask = torch.arange(keys.shape[2], device=q.device) <= places[..., None]  # [R, t, N · S]
    y = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, attn_mask=mask[:, None])
    return y.transpose(1, 2).flatten(2)
