"""Prefill passes through the trunk as CUDA graphs, one per number of rows and of page tables.

A prefill of a few rows is about 300 kernels of a few microseconds each; single launches would take
longer than the computation. Padding rows write to the scratch slot. Knows rows and pages, but no
requests.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from mosslive.cache import PageStorage
from mosslive.engine.batch import Part
from mosslive.kernels import AttentionMetadata, PagedBatch, write_pages
from mosslive.kernels.graph import GraphRecorder
from mosslive.model import Decoder
from mosslive.rows import Row

ROWS = (8, 16, 32, 64, 128, 256, 512)
REQUESTS = (1, 64)


class _Bucket(NamedTuple):
    rows: int
    requests: int


class PassGraphs:
    def __init__(
        self, decoder: Decoder, storage: PageStorage, most_rows: int, pages_per_request: int
    ) -> None:
        self._decoder, self._storage = decoder, storage
        rows = [*(n for n in ROWS if n < most_rows), most_rows]
        self._buckets = [_Bucket(n, requests) for requests in REQUESTS for n in rows]
        device, pinned = decoder.device, decoder.device.type == "cuda"
        most = REQUESTS[-1]

        def pair(*shape: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
            host = torch.zeros(shape, dtype=dtype, pin_memory=pinned)
            return host, torch.zeros(shape, dtype=dtype, device=device)

        # text, audio, position, slot of each row
        self._host_rows, self._rows = pair(4, most_rows, dtype=torch.int64)
        self._rows[3] = storage.scratch_slot  # the capture runs passes; they may write only there
        self._host_starts, self._starts = pair(most + 1, dtype=torch.int32)
        self._host_tables, self._tables = pair(most, pages_per_request, dtype=torch.int32)
        self._graphs: dict[_Bucket, torch.cuda.CUDAGraph] = {}

    def record(self, recorder: GraphRecorder) -> None:
        for bucket in sorted(self._buckets, reverse=True):
            self._graphs[bucket], _ = recorder.record(partial(self._work, bucket))

    def bucket(self, rows: int, requests: int) -> _Bucket | None:
        """Returns the smallest captured pass that is large enough, or None."""
        fitting = [b for b in self._graphs if b.rows >= rows and b.requests >= requests]
        return min(fitting, default=None)

    def run(self, bucket: _Bucket, rows: list[Row], parts: list[Part]) -> None:
        """Computes these rows and writes their keys, values and output to their pages."""
        # The previous pass may still be reading its inputs.
        torch.cuda.current_stream(self._rows.device).synchronize()
        grid, count = self._host_rows.numpy(), len(rows)
        grid[:2, :count] = list(zip(*rows, strict=True))
        grid[2, :count] = [position for part in parts for position in part.positions]
        grid[3, :count] = [slot for part in parts for slot in part.slots]
        grid[:3, count : bucket.rows] = 0
        grid[3, count : bucket.rows] = self._storage.scratch_slot
        starts, tables, end = self._host_starts.numpy(), self._host_tables.numpy(), 0
        for index, part in enumerate(parts):
            tables[index, : len(part.pages)] = part.pages
            starts[index] = end
            end += len(part.positions)
        starts[len(parts) :] = end
        self._rows.copy_(self._host_rows, non_blocking=True)
        self._starts.copy_(self._host_starts, non_blocking=True)
        some = slice(len(parts))
        self._tables[some].copy_(self._host_tables[some], non_blocking=True)
        self._graphs[bucket].replay()

    @torch.inference_mode()
    def _work(self, bucket: _Bucket) -> None:
        text, audio, positions, slots = self._rows[:, : bucket.rows]
        requests = bucket.requests
        metadata = AttentionMetadata(
            self._tables[:requests], self._starts[: requests + 1], bucket.rows
        )
        batch = PagedBatch(positions, slots, [], metadata)
        hidden = self._decoder.trunk(text, audio, self._storage.trunk, batch)
        write_pages(self._storage.hidden, hidden, slots)
