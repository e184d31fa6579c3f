"""Causal attention of flattened rows over keys and values that are stored in pages.

Rows of several requests stand one after another, without padding; each request brings its own
page list. One definition serves prefill, catch-up and decode. Knows nothing of layers.

Which rows a row sees is given in two forms: as spans for the definition, and as metadata tensors
that a kernel reads on the device. Both mean the same: row t sees rows 0 .. positions[t] of its
request.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mosslive.kernels.upload import upload


class LayerPages(NamedTuple):
    """Keys and values of one layer, [pages, page_size, kv_heads, D] each."""

    k: Tensor
    v: Tensor


@dataclass(frozen=True)
class Span:
    """The rows of one request within a flattened batch."""

    first: int  # rows first .. last-1 of the batch
    last: int
    pages: Tensor | slice  # the request's pages in order, [P] int64; a slice if they are adjacent
    context: int  # rows of the request so far, including those of this batch
    mask: Tensor | None  # bool [last - first, context]: what each row sees; None: everything


class AttentionMetadata(NamedTuple):
    """The requests of a batch as tensors, so that a CUDA graph can be replayed with others."""

    tables: Tensor  # [B, P] int32, pages of each request in order, then any valid page
    starts: Tensor  # [B + 1] int32, rows starts[b] .. starts[b+1]-1 of the batch are request b's
    longest: int  # most rows of one request; 1: a decode step


@dataclass(frozen=True)
class PagedBatch:
    positions: Tensor  # [T] int64, of each row within its request
    slots: Tensor  # [T] int64, where its key and value go: page · page_size + offset
    spans: list[Span]
    metadata: AttentionMetadata | None = None  # read by the Triton kernels instead of the spans


def make_span(
    first: int, pages: list[int], positions: list[int], context: int, device: torch.device
) -> Span:
    """`positions`: of the request's rows in this batch, ascending, not necessarily adjacent."""
    mask = None
    if positions[0] < context - 1:  # otherwise it is one row, the newest, which sees all rows
        rows = torch.tensor(positions, device=device)[:, None]
        mask = torch.arange(context, device=device) <= rows
    start, end = pages[0], pages[0] + len(pages)
    adjacent = pages == list(range(start, end))
    held = slice(start, end) if adjacent else torch.tensor(pages, device=device)
    return Span(first, first + len(positions), held, context, mask)


def make_attention_metadata(
    spans_pages: list[list[int]], counts: list[int], device: torch.device
) -> AttentionMetadata:
    """`spans_pages`: pages of each request in order; `counts`: its rows in the batch."""
    widest = max(map(len, spans_pages))
    tables = [pages + pages[-1:] * (widest - len(pages)) for pages in spans_pages]
    starts = list(accumulate(counts, initial=0))
    return AttentionMetadata(
        upload(tables, device, torch.int32),
        upload(starts, device, torch.int32),
        max(counts),
    )


def write_pages(pages: Tensor, values: Tensor, slots: Tensor) -> None:
    """pages [N, S, ...], values [T, ...]: row t goes to slot slots[t]."""
    pages.flatten(0, 1).index_copy_(0, slots, values)


def read_pages(pages: Tensor, span: Span) -> Tensor:
    """pages [N, S, ...] → the request's rows [context, ...]; no copy where pages are adjacent."""
    held = span.pages
    own = pages[held] if isinstance(held, slice) else pages.index_select(0, held)
    return own.flatten(0, 1)[: span.context]


def paged_attention(q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: PagedBatch) -> Tensor:
    """softmax(q · kᵀ / √D) · v for every row over the rows it may see.

    q [T, H, D]; k_pages, v_pages [N, S, H_kv, D] (keys of this batch written already) → [T, H, D].
    Query head h reads key head h // (H / H_kv).
    """
    results = []
    for span in batch.spans:
        k = read_pages(k_pages, span).transpose(0, 1)[None]  # [1, H_kv, C, D]
        v = read_pages(v_pages, span).transpose(0, 1)[None]
        rows = q[span.first : span.last]  # [n, H, D]
        if span.mask is None:
            # One row: the heads of a group act as rows, so keys need not be repeated.
            grouped = rows.reshape(1, k.shape[1], -1, q.shape[-1])  # [1, H_kv, H / H_kv, D]
            results.append(F.scaled_dot_product_attention(grouped, k, v).reshape(rows.shape))
        else:
            result = F.scaled_dot_product_attention(
                rows.transpose(0, 1)[None], k, v, attn_mask=span.mask, enable_gqa=True
            )
            results.append(result[0].transpose(0, 1))
    return results[0] if len(results) == 1 else torch.cat(results)
