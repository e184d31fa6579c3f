"""The three steps of the encoder that run on the device, each for rows of many segments.

A row is one block of one segment. `hear` computes features of new blocks and their codes, `measure`
computes features of the last blocks of segments and finds what a louder moment changes, `revise`
computes codes again. On a GPU each is a CUDA graph by the number of rows; the graph reads which
memory it works on from its input. Nothing here waits for the device: a `Readback` says when its
values are there. Knows neither turns nor which rows belong together beyond their `group`.
Invariant: a row's result does not depend on the other rows, except on those of its own segment.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec.encoder import POOL, Encoder
from mosslive.codec.encoder_pages import PAGE_CODES, EncoderMemory, SegmentPages
from mosslive.codec.encoder_samples import WINDOW_SAMPLES, Samples
from mosslive.codec.mel import floor_and_scale, floor_rises, log10_mel
from mosslive.kernels.arithmetic import arithmetic
from mosslive.kernels.graph import GraphRecorder

# Rows of the recorded steps. A step of more rows is cut into several.
BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
# Columns of a row before its page table: `Rows.add` gives their meaning.
_NUMBERS = 7
_PLACE, _PREVIOUS, _BEFORE, _BLOCK, _GROUP, _DONE, _LOUDEST = range(_NUMBERS)
_NO_ROW = (0, 0, -1, 0, -1, -1, 0)  # writes to page 0, which nobody reads


@dataclass
class Rows:
    """The input of a step, collected on the host."""

    numbers: list[tuple[int, ...]] = field(default_factory=list)
    loudest: list[float] = field(default_factory=list)
    tables: list[NDArray[np.int32]] = field(default_factory=list)
    samples: list[Samples] = field(default_factory=list)
    pages: int = 1  # that the longest of these segments has

    def add(
        self,
        pages: SegmentPages,
        block: int,
        samples: Samples | None = None,
        *,
        group: int = 0,
        before: int = -1,
        done: int = -1,
        loudest: float = 0.0,
    ) -> None:
        """block: -1 for the frame after the last block, which has no place. samples: of the row's
        frames. group: equal for rows of one segment. before: the last block of the segment that has
        a loudest value already. done: with the frame after the last block, how many live blocks to
        test. loudest: the final value, for `revise`."""
        place = pages.place(block) if block >= 0 else 0
        previous = max(pages.place(block - 1), 0)
        self.numbers.append((place, previous, pages.place(before), block, group, done, 0))
        self.tables.append(pages.table)
        self.pages = max(self.pages, len(pages.held))
        self.loudest.append(loudest)
        if samples is not None:
            self.samples.append(samples)

    def __len__(self) -> int:
        return len(self.numbers)

    def cut(self, first: int, end: int) -> "Rows":
        part = slice(first, end)
        kept = self.numbers[part], self.loudest[part], self.tables[part], self.samples[part]
        return Rows(*kept, self.pages)


class Readback:
    """Values on their way to the host."""

    def __init__(self) -> None:
        self._values: list[Tensor] = []
        self._event: torch.cuda.Event | None = None

    def add(self, value: Tensor, count: int) -> None:
        """The first columns of the result of a step. Copies at once: the next step may overwrite
        the result of a recorded one."""
        kept = torch.empty_like(value, device="cpu", pin_memory=value.is_cuda)
        kept.copy_(value, non_blocking=True)
        if value.is_cuda:
            self._event = self._event or torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()
        self._values.append(kept[:, :count])

    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> Tensor:
        """[n, columns of all steps]; waits for the device if it must."""
        if self._event is not None:
            self._event.synchronize()
        return torch.cat(self._values, 1)

    def codes(self) -> list[int]:
        """Of `hear` and `revise`, one of each row; waits like `wait`."""
        values: list[int] = self.wait()[0].tolist() if self._values else []
        return values


Step = Callable[[Tensor, int], Tensor]


class EncoderSteps:
    def __init__(self, encoder: Encoder, memory: EncoderMemory) -> None:
        self._encoder, self._memory = encoder, memory
        self._device = encoder.half_norms.device
        self._graphed = self._device.type == "cuda"
        self._steps: dict[str, Step] = {
            "hear": self._hear,
            "measure": self._measure,
            "revise": self._revise,
        }
        self.most_rows = BUCKETS[-1]  # of one recorded step
        self._recorder: GraphRecorder | None = None
        self._graphs: dict[tuple[str, int], tuple[Tensor, torch.cuda.CUDAGraph, Tensor]] = {}

    def hear(self, rows: Rows) -> Readback:
        """Rows with samples, those of one segment in order; either
        few enough for one recorded step, or one of each segment → codes [1, rows]."""
        return self._launch("hear", rows)

    def measure(self, rows: Rows) -> Readback:
        """Rows with samples: the last blocks of each segment and the frame after them → float32
        [2, rows]. In the row of that frame: the first live block whose features change, or else the
        number of live blocks; and the loudest value of the segment."""
        return self._launch("measure", rows)

    def revise(self, rows: Rows) -> Readback:
        """Rows whose frames are stored, with the final loudest value → codes [1, rows]."""
        return self._launch("revise", rows)

    def record(self, most: int) -> None:
        """Records all steps of up to `most` rows, the largest first; does nothing on a CPU."""
        if not self._graphed:
            return
        largest = next((size for size in BUCKETS if size >= most), BUCKETS[-1])
        self.most_rows = largest  # nothing is recorded while conversations run
        for bucket in reversed(BUCKETS[: BUCKETS.index(largest) + 1]):
            for kind in self._steps:
                self._recorded(kind, bucket)

    def _launch(self, kind: str, rows: Rows) -> Readback:
        # The rows of a segment share one maximum: `measure` is not cut.
        most = len(rows) if kind == "measure" else self.most_rows
        readback = Readback()
        for first in range(0, len(rows), max(most, 1)):
            part = rows.cut(first, first + most)
            readback.add(self._run(kind, part), len(part))
        return readback

    def _run(self, kind: str, rows: Rows) -> Tensor:
        pinned = self._device.type == "cuda"
        sizes = (size for size in BUCKETS if self._graphed and size <= self.most_rows)
        bucket = next((size for size in sizes if size >= len(rows)), None)
        if bucket is None:
            packed = _pack(kind, rows, len(rows), rows.pages, pinned=pinned)
            return self._steps[kind](packed.to(self._device, non_blocking=True), rows.pages)
        given, graph, result = self._recorded(kind, bucket)
        pages = self._memory.segment_pages
        given.copy_(_pack(kind, rows, bucket, pages, pinned=pinned), non_blocking=True)
        graph.replay()
        return result

    def _recorded(self, kind: str, bucket: int) -> tuple[Tensor, torch.cuda.CUDAGraph, Tensor]:
        key = (kind, bucket)
        if key not in self._graphs:
            self._recorder = self._recorder or GraphRecorder(self._device)
            pages = self._memory.segment_pages
            given = _pack(kind, Rows(), bucket, pages, pinned=False).to(self._device)
            graph, result = self._recorder.record(partial(self._steps[kind], given, pages))
            self._graphs[key] = (given, graph, result)
        return self._graphs[key]

    # The work on the device. `packed` is the result of `_pack`.

    @arithmetic("fp32")
    def _hear(self, packed: Tensor, pages: int) -> Tensor:
        numbers, memory = _numbers(packed), self._memory
        log10 = self._store_frames(packed, pages, numbers)
        block, group = numbers[_BLOCK], numbers[_GROUP]
        # Up to and with each block: those of the same segment in this step, and the one before.
        seen = (group[:, None] == group) & (block <= block[:, None])
        loudest = self._loudest(seen, log10.amax((1, 2)), numbers[_BEFORE])
        memory.loudest[numbers[_PLACE]] = loudest
        return self._codes(packed, pages, numbers)

    @arithmetic("fp32")
    def _measure(self, packed: Tensor, pages: int) -> Tensor:
        numbers, memory = _numbers(packed), self._memory
        log10 = self._store_frames(packed, pages, numbers)
        group, done = numbers[_GROUP], numbers[_DONE]
        # Of the row after the last block only the first column is a frame of the segment.
        own = torch.where(done >= 0, log10[:, :, 0].amax(1), log10.amax((1, 2)))
        loudest = self._loudest(group[:, None] == group, own, numbers[_BEFORE])
        table = packed[:, _NUMBERS : _NUMBERS + pages].long()
        lowest, before = (
            value.view(-1, PAGE_CODES)[table].flatten(1)  # [rows, blocks]
            for value in (memory.lowest, memory.loudest)
        )
        live = torch.arange(lowest.shape[1], device=packed.device) < done[:, None]
        changed = floor_rises(lowest, before, loudest[:, None]) & live
        first = torch.where(changed.any(1), changed.int().argmax(1), done)
        return torch.stack((first.float(), loudest))

    @arithmetic("fp32")
    def _revise(self, packed: Tensor, pages: int) -> Tensor:
        numbers = _numbers(packed)
        loudest = packed[:, _LOUDEST].contiguous().view(torch.float32)
        self._memory.loudest[numbers[_PLACE]] = loudest
        return self._codes(packed, pages, numbers)

    def _store_frames(self, packed: Tensor, pages: int, numbers: Tensor) -> Tensor:
        """The frames [rows, mel_bands, 8], stored by place."""
        wave = packed[:, _NUMBERS + pages :].contiguous().view(torch.float32)
        log10 = log10_mel(wave, self._encoder.dims.mel_bands)
        is_first = (numbers[_BLOCK] == 0)[:, None]
        # Neither the loudest nor the lowest because of it.
        log10[:, :, 0] = torch.where(is_first, log10[:, :, 1], log10[:, :, 0])
        self._memory.log10[numbers[_PLACE]] = log10
        self._memory.lowest[numbers[_PLACE]] = log10.amin((1, 2))
        return log10

    def _loudest(self, seen: Tensor, own: Tensor, before: Tensor) -> Tensor:
        """Of each row: its seen rows' values [rows, rows] and the stored one at `before`."""
        none = torch.full((), -torch.inf, device=own.device)
        earlier = torch.where(before >= 0, self._memory.loudest[before.clamp(min=0)], none)
        return torch.maximum(torch.where(seen, own, none).amax(1), earlier)

    def _codes(self, packed: Tensor, pages: int, numbers: Tensor) -> Tensor:
        """[1, rows], from the stored frames and loudest values."""
        memory, place, previous = self._memory, numbers[_PLACE], numbers[_PREVIOUS]
        before = _features(memory, previous)[:, :, -3:]
        frames = torch.cat((before, _features(memory, place)), 2)
        position = POOL * numbers[_BLOCK].clamp(min=0)
        table = packed[:, _NUMBERS : _NUMBERS + pages].contiguous()
        return self._encoder.blocks(frames, position, memory.pasts(position, table))[None]


def _features(memory: EncoderMemory, place: Tensor) -> Tensor:
    return floor_and_scale(memory.log10[place], memory.loudest[place][:, None, None])


def _numbers(packed: Tensor) -> Tensor:
    """int64 [7, rows], each row contiguous."""
    return packed[:, :_NUMBERS].long().T.contiguous()


def _pack(kind: str, rows: Rows, size: int, pages: int, *, pinned: bool) -> Tensor:
    """int32 [size, width]: numbers, page table and, except for `revise`, samples of each row. The
    last number and the samples are float32 by their bits."""
    count, first_sample = len(rows), _NUMBERS + pages
    width = first_sample + (0 if kind == "revise" else WINDOW_SAMPLES)
    result = torch.empty(size, width, dtype=torch.int32, pin_memory=pinned)
    packed: NDArray[np.int32] = result.numpy()
    packed[count:] = 0
    packed[count:, :_NUMBERS] = _NO_ROW
    if count:
        wide = packed.view(np.float32)
        packed[:count, :_NUMBERS] = rows.numbers
        wide[:count, _LOUDEST] = rows.loudest
        packed[:count, _NUMBERS:first_sample] = np.stack(rows.tables)[:, :pages]
        if rows.samples:
            wide[:count, first_sample:] = np.stack(rows.samples)
    return result
