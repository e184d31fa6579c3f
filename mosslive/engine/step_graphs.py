"""One decode step of many rows as CUDA graphs: one graph per bucket for the trunk and each tail.

After the capture a step is two or three graph launches, a copy before the first and the second of
them, and one copy back. Trunk and tails are separate graphs, so that any mix of audio and text rows
reads the trunk's weights once. Knows rows, pages and sampling settings, but no requests. Without a
GPU the same functions run directly.
"""

from functools import partial

import torch
from torch import Tensor

from mosslive.cache import PageStorage
from mosslive.engine.seen_ids import SeenIds
from mosslive.engine.step_buffers import StepBuffers
from mosslive.kernels import AttentionMetadata, PagedBatch, SamplingBatch, write_pages
from mosslive.kernels.graph import GraphRecorder
from mosslive.model import Decoder
from mosslive.rows import CHANNELS, Channel

# Dense where a few more rows cost time, sparse where reading the weights dominates.
BUCKETS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)


class StepGraphs:
    def __init__(
        self, decoder: Decoder, storage: PageStorage, buffers: StepBuffers, seen_ids: SeenIds
    ) -> None:
        self.decoder, self.storage = decoder, storage
        self.buffers, self.seen_ids = buffers, seen_ids
        config, device = decoder.config, decoder.device
        rows = buffers.most + 1
        self.buckets = [*(b for b in BUCKETS if b < buffers.most), buffers.most]
        self._starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
        # The trunk's output of this step; that of the padding row is never computed.
        self._hidden = torch.zeros(rows, config.hidden_size, dtype=decoder.dtype, device=device)
        self._graphs: dict[tuple[str, int], torch.cuda.CUDAGraph] = {}

    def bucket(self, count: int) -> int:
        return next(bucket for bucket in self.buckets if bucket >= count)

    def record(self, recorder: GraphRecorder) -> None:
        for bucket in reversed(self.buckets):
            for name in ("trunk", *CHANNELS):
                graph, _ = recorder.record(partial(self._work, name, bucket))
                self._graphs[name, bucket] = graph

    def run(self, name: str, bucket: int) -> None:
        """Runs the trunk or a tail (`name`) on the buffers."""
        if graph := self._graphs.get((name, bucket)):
            graph.replay()
        else:
            self._work(name, bucket)

    @torch.inference_mode()
    def _work(self, name: str, bucket: int) -> None:
        if name == "trunk":
            self._trunk(bucket)
        else:
            self._tail(CHANNELS[CHANNELS.index(name)], bucket)

    def _trunk(self, bucket: int) -> None:
        fields = self.buffers.device
        text, audio, slots = (f[:bucket] for f in (fields.text, fields.audio, fields.slot))
        for channel, indices in zip(CHANNELS, fields.seen_index, strict=True):
            self.seen_ids.add(channel, indices[:bucket])
        batch = self._batch(fields.position[:bucket], slots, self.buffers.tables[:bucket])
        hidden = self.decoder.trunk(text, audio, self.storage.trunk, batch)
        write_pages(self.storage.hidden, hidden, slots)
        self._hidden[:bucket] = hidden

    def _tail(self, channel: Channel, bucket: int) -> None:
        index = CHANNELS.index(channel)
        own = {
            name: t[index, :bucket]
            for name, t in self.buffers.device._asdict().items()
            if t.dim() > 1
        }
        members = own["members"]
        tables = self.buffers.tables.index_select(0, members)
        batch = self._batch(own["tail_position"], own["tail_slot"], tables)
        # An ordinary launch, after the tables: the layers read the tables before they wait for the
        # previous kernel (`kernels/gpu/overlap.py`).
        hidden = self._hidden.index_select(0, members)
        pages = self.storage.tails[channel]
        last = self.decoder.tail(channel, hidden, pages, batch, spare=True)
        logits = self.decoder.logits(channel, last)
        sampling = SamplingBatch(
            legal=own["legal"],
            greedy=own["greedy"],
            temperature=own["temperature"],
            top_k=own["top_k"],
            top_p=own["top_p"],
            penalty=own["penalty"],
            seen=self.seen_ids.seen[channel],
            seen_rows=own["seen_slot"],
            seed=own["seed"],
            step=own["step"],
            channel=index,
        )
        self.buffers.ids[index, :bucket] = self.decoder.kernels.sample_batch(logits, sampling)

    def _batch(self, positions: Tensor, slots: Tensor, tables: Tensor) -> PagedBatch:
        metadata = AttentionMetadata(tables, self._starts[: len(positions) + 1], 1)
        return PagedBatch(positions, slots, [], metadata)
