"""Flattened batches for the decoder, in the form that the decoder reads.

The PyTorch definition of attention reads spans, the Triton kernel reads tensors
(`AttentionMetadata`). `make_batch` builds only the form that is read: it runs in every step.
"""

from typing import NamedTuple

import torch

from mosslive.kernels import PagedBatch, make_attention_metadata, make_span, upload
from mosslive.model import Decoder


class Part(NamedTuple):
    """The rows of one page table in a batch."""

    pages: list[int]  # of the table, in order
    positions: list[int]  # of these rows, ascending
    slots: list[int]  # where their keys and values are written


def make_batch(parts: list[Part], page_size: int, decoder: Decoder) -> PagedBatch:
    device = decoder.device
    positions = [position for part in parts for position in part.positions]
    slots = [slot for part in parts for slot in part.slots]
    # A row sees only rows up to its own position, so later pages are left out.
    contexts = [part.positions[-1] + 1 for part in parts]
    held = [
        part.pages[: -(-context // page_size)]
        for part, context in zip(parts, contexts, strict=True)
    ]
    counts = [len(part.positions) for part in parts]
    spans, metadata = [], None
    if decoder.reads_metadata:
        metadata = make_attention_metadata(held, counts, device)
    else:
        first = 0
        for part, pages, context, count in zip(parts, held, contexts, counts, strict=True):
            spans.append(make_span(first, pages, part.positions, context, device))
            first += count
    rows = upload([positions, slots], device, torch.int64)
    return PagedBatch(rows[0], rows[1], spans, metadata)
