"""A chunk of each stream attends to its stream's past, which is stored in pages.

softmax(q · kᵀ / √D + rotated · placesᵀ) · v over the columns of all earlier chunks, or of those
within `window` columns before the chunk, and of the whole chunk itself. Knows nothing of networks.
Invariant: the chunk's own keys and values are in its page before this is called.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.kernels.flow_chunks import Chunks


def chunk_attention(
    q: Tensor,
    pages: Tensor,
    chunks: Chunks,
    window: int | None = None,
    rotated: Tensor | None = None,
    places: Tensor | None = None,
) -> Tensor:
    """q [halves · B, T, H, D]; pages [2, P, halves, H, T, D]: keys, then values → like q.

    rotated [halves · B, T, H, E] float32, if scores depend on positions; multiplied with places
    [N, E] float32 at the keys' positions.
    """
    rows, columns, heads, width = q.shape
    streams = len(chunks.table)
    halves, reach = rows // streams, chunks.reach
    seen = pages[:, chunks.table[:, :reach].long()]  # [2, B, n, halves, H, T, D]
    seen = seen.permute(0, 3, 1, 4, 2, 5, 6).reshape(2, rows, heads, reach * columns, width)
    key = torch.arange(reach * columns, device=q.device)
    begin = columns * chunks.index[:, None]
    visible = key < begin + chunks.held[:, None]  # [B, K]
    if window is not None:
        visible &= key >= begin - window
    bias = torch.zeros(visible.shape, device=q.device).masked_fill(~visible, -torch.inf)
    bias = bias.repeat(halves, 1)[:, None, None]  # [halves · B, 1, 1, K]
    if rotated is not None:
        assert places is not None, "`rotated` needs `places`"
        at = places[key.clamp(max=len(places) - 1)]
        bias = bias + rotated.transpose(1, 2) @ at.T
    attended = F.scaled_dot_product_attention(
        q.transpose(1, 2), seen[0], seen[1], attn_mask=bias.to(q.dtype)
    )
    return attended.transpose(1, 2)
