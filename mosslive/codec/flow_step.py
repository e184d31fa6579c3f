"""One chunk of many streams, from codes to mel, with every shape fixed beforehand.

Everything that differs between streams (codes, page tables, positions, voice) is an input tensor,
so that on a GPU a step of B streams is one recorded graph, replayed for any streams at any
positions. Stores no streams and decides nothing. Invariants: a step reads pages of earlier chunks
and writes only the pages of the new chunk; running it twice changes nothing.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec.conformer import FRAMES_PER_TOKEN, LOOK_AHEAD
from mosslive.codec.estimator_step import EstimatorStep
from mosslive.codec.flow import Flow
from mosslive.codec.flow_memory import page_forms
from mosslive.codec.flow_paged import Paged
from mosslive.codec.flow_pages import SCRATCH_PAGE, PageForm, PageStore
from mosslive.kernels.dispatch import AUTO, Dispatch
from mosslive.kernels.flow_chunks import Chunks
from mosslive.kernels.graph import Graphed
from mosslive.kernels.trace import Traced

BUCKETS = (1, 2, 4, 8, 16, 32, 64)  # numbers of streams for which a step is recorded


@dataclass(frozen=True, eq=False)
class ChunkInput:
    """The input of one stream to a step."""

    tokens: list[int]  # of the chunk, and up to three behind it; fewer at a stream's end
    index: int  # of the chunk, counted from the prompt's start
    conformer: list[int]  # pages, up to and with the chunk's own
    estimator: list[int]
    speaker: Tensor  # [bands]
    known: Tensor  # [frames in the chunk, bands], the prompt's mel where it reaches into the chunk


class FlowStep:
    def __init__(
        self,
        flow: Flow,
        chunk: int,
        window_frames: int | None,
        dtype: torch.dtype,
        pages: tuple[int, int],
        trace_cpu_steps: bool = True,
        dispatch: Dispatch = AUTO,
    ) -> None:
        """`pages` of the conformer and of the estimator; `dtype` of the estimator's products;
        `trace_cpu_steps`: see `StreamSettings`."""
        self._flow, self._chunk, self._window = flow, chunk, window_frames
        self._frames = FRAMES_PER_TOKEN * chunk
        self._device = device = flow.noise.device
        self._columns = -(-flow.noise.shape[1] // self._frames)  # of a page table
        self._kernels = dispatch.kernels(device, dtype)
        self._estimator = EstimatorStep(flow.estimator, flow.settings, dtype, self._kernels)
        self.forms = token_form, frame_form, estimator_form = self._forms(dtype)
        self._tokens = PageStore(token_form, pages[0], device)
        self._frame_store = PageStore(frame_form, pages[0], device)
        self._pages = PageStore(estimator_form, pages[1], device)
        self._graphs: dict[int, Graphed[Tensor]] = {}
        self._trace_cpu_steps = trace_cpu_steps
        self._trace: Traced[Tensor] | None = None  # on a CPU, of one stream

    @torch.no_grad()
    def __call__(self, streams: Sequence[ChunkInput]) -> Tensor:
        """→ mel [B, bands, T]; frames beyond the end of a last chunk are meaningless."""
        most = BUCKETS[-1]
        batches = [streams[first : first + most] for first in range(0, len(streams), most)]
        return torch.cat([self._batch(batch) for batch in batches])

    def _batch(self, streams: Sequence[ChunkInput]) -> Tensor:
        count, recorded = len(streams), self._device.type == "cuda"
        rows = next(size for size in BUCKETS if size >= count) if recorded else count
        # Without a graph, tables are only as long as the longest past.
        columns = self._columns if recorded else 1 + max(stream.index for stream in streams)
        numbers = torch.from_numpy(self._numbers(streams, rows, columns)).to(self._device)
        bands = len(self._flow.noise)
        speaker = torch.zeros(rows, bands, device=self._device)
        speaker[:count] = torch.stack([stream.speaker for stream in streams])
        known = torch.zeros(rows, self._frames, bands, device=self._device)
        for row, stream in enumerate(streams):
            if len(stream.known):
                known[row, : len(stream.known)] = stream.known
        if not recorded:
            return self._on_cpu(numbers, speaker, known)
        if rows not in self._graphs:
            self._graphs[rows] = Graphed(self._weakly(), numbers, speaker, known)
        return self._graphs[rows](numbers, speaker, known)[:count].clone()

    @torch.no_grad()
    def compile(self, streams: int) -> None:
        """Computes a step of padding alone, which changes no stream."""
        rows = next(size for size in BUCKETS if size >= streams)
        numbers = torch.from_numpy(self._numbers([], rows, self._columns)).to(self._device)
        speaker = torch.zeros(rows, len(self._flow.noise), device=self._device)
        known = torch.zeros(rows, self._frames, len(self._flow.noise), device=self._device)
        self._compute(numbers, speaker, known, *self._memory, reach=1)

    def _weakly(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """`_compute` for a graph that this object owns. A reference cycle would keep the pool's
        memory until the garbage collector runs."""
        this = weakref.ref(self)

        def compute(numbers: Tensor, speaker: Tensor, known: Tensor) -> Tensor:
            step = this()
            assert step is not None
            return step._compute(numbers, speaker, known, *step._memory)

        return compute

    @property
    def _memory(self) -> list[Tensor]:
        stores = self._tokens, self._frame_store, self._pages
        return [tensor for store in stores for tensor in store.memory]

    def _on_cpu(self, *given: Tensor) -> Tensor:
        """A step of one stream, as most are, is recorded once for all lengths of the past."""
        given = *given, *self._memory
        traced = self._trace_cpu_steps and self._device.type == "cpu"
        if len(given[0]) > 1 or not traced or self._kernels.is_triton:
            return self._compute(*given)
        if self._trace is None:
            self._trace = Traced(self._compute, *given)
        return self._trace(*given)

    def _numbers(self, streams: Sequence[ChunkInput], rows: int, columns: int) -> NDArray[np.int32]:
        """[rows, width] int32, with tables of `columns` entries: see `_compute`. Padding is a
        stream at its start that writes to the scratch page."""
        codes = self._chunk + LOOK_AHEAD
        numbers = np.zeros((rows, codes + 2 + 2 * columns), dtype=np.int32)
        numbers[:, codes] = codes
        numbers[:, codes + 2 :: columns] = SCRATCH_PAGE
        for row, stream in zip(numbers, streams, strict=False):
            row[: len(stream.tokens)] = stream.tokens
            row[codes : codes + 2] = len(stream.tokens), stream.index
            for pages, first in (
                (stream.conformer, codes + 2),
                (stream.estimator, codes + 2 + columns),
            ):
                row[first : first + len(pages)] = pages
        return numbers

    def _compute(
        self,
        numbers: Tensor,
        speaker: Tensor,
        known: Tensor,
        *memory: Tensor,
        reach: int | None = None,
    ) -> Tensor:
        """numbers: the chunk's codes and those after it, how many of these are real, the chunk's
        index, the two page tables; memory: of the stores; reach: columns of the tables to read,
        default: all. → mel [B, bands, T]"""
        flow, chunk, width = self._flow, self._chunk, self._chunk + LOOK_AHEAD
        given = iter(memory)
        token_store, frame_store, pages = (
            store.over(given) for store in (self._tokens, self._frame_store, self._pages)
        )
        codes, there, index = numbers[:, :width], numbers[:, width, None], numbers[:, width + 1]
        index, held = index.contiguous(), there[:, 0].clamp(max=chunk)
        conformer, estimator = (
            table.contiguous() for table in numbers[:, width + 2 :].chunk(2, dim=1)
        )
        reach = conformer.shape[1] if reach is None else reach
        tokens = Chunks(conformer, index, held, reach)
        frames = Chunks(conformer, index, FRAMES_PER_TOKEN * held, reach)
        at = Chunks(estimator, index, frames.held, reach)
        present = torch.arange(width, device=numbers.device) < there
        attention, table = self._kernels.chunk_attention, flow.encoder.table
        mu = flow.mu(
            codes.long(),
            present,
            Paged(token_store, tokens, attention, table),
            Paged(frame_store, frames, attention, table),
        )
        places = self._frames * index[:, None] + torch.arange(self._frames, device=numbers.device)
        noise = flow.noise[:, places.clamp(max=flow.noise.shape[1] - 1)].permute(1, 2, 0)
        condition = (mu.mT, speaker[:, None].expand(-1, self._frames, -1), known)
        mel = self._estimator.solve(
            noise, torch.cat(condition, 2), pages, at, self._window
        )  # [B, T, bands]
        return mel.mT

    def _forms(self, dtype: torch.dtype) -> tuple[PageForm, PageForm, PageForm]:
        return page_forms(self._flow, self._chunk, dtype)
