"""Runs whole sequences through a decoder, both tails on every row, without keeping the cache.

Uses the ordinary pages, so that it checks the code an engine runs.
"""

from itertools import accumulate, chain

import torch
from torch import Tensor

from mosslive.cache import PageStorage
from mosslive.kernels import PagedBatch, make_attention_metadata, make_span
from mosslive.model import Decoder
from mosslive.rows import CHANNELS, Channel, Row

_PAGE_SIZE = 16


@torch.inference_mode()
def run_sequences(decoder: Decoder, sequences: list[list[Row]]) -> dict[Channel, Tensor]:
    """Each tail's output [T, H] before its final norm, for the rows of all sequences in order."""
    device = decoder.device
    counts = [len(rows) for rows in sequences]
    most = -(
        -max(counts) // _PAGE_SIZE
    )  # pages of the longest sequence; every sequence gets that many
    storage = PageStorage(decoder.config, most * len(counts), _PAGE_SIZE, device, decoder.dtype)
    pages = [
        list(range(n * most, n * most + -(-count // _PAGE_SIZE))) for n, count in enumerate(counts)
    ]
    starts = list(accumulate(counts, initial=0))[:-1]
    spans = [
        make_span(first, held, list(range(count)), count, device)
        for first, held, count in zip(starts, pages, counts, strict=True)
    ]
    positions = list(chain.from_iterable(range(count) for count in counts))
    slots = [n * most * _PAGE_SIZE + p for n, count in enumerate(counts) for p in range(count)]
    batch = PagedBatch(
        torch.tensor(positions, device=device),
        torch.tensor(slots, device=device),
        spans,
        make_attention_metadata(pages, counts, device),
    )
    text, audio = (
        torch.tensor([row[index] for rows in sequences for row in rows], device=device)
        for index in range(len(CHANNELS))
    )
    hidden = decoder.trunk(text, audio, storage.trunk, batch)
    return {c: decoder.tail(c, hidden, storage.tails[c], batch) for c in CHANNELS}
