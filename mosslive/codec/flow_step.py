"""One chunk of many streams, from codes to mel, with every shape fixed beforehand.

Everything that differs between streams (codes, page tables, positions, voice) is an input tensor,
so that on a GPU a step of B streams is one recorded graph, replayed for any streams at any
positions. Stores no streams and decides nothing. Invariants: a step reads pages of earlier chunks
and writes only the pages of the new chunk; running it twice changes nothing; `launch` does not wait
for the device.
"""

import weakref
from array import array
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
from mosslive.codec.flow_voices import VoiceRows
from mosslive.codec.graph_sets import BUCKETS, MOST_OVERLAPPED, GraphSet, bucket_of
from mosslive.kernels.dispatch import AUTO, Dispatch
from mosslive.kernels.flow_chunks import Chunks
from mosslive.kernels.trace import Traced
from mosslive.kernels.wide_steps import wide_step

_PLACE = 4  # numbers of a row of a recorded step that come before those of `_compute`


@dataclass(frozen=True, eq=False)
class ChunkInput:
    """The input of one stream to a step."""

    tokens: list[int]  # of the chunk, and up to three behind it; fewer at a stream's end
    index: int  # of the chunk, counted from the prompt's start
    conformer: list[int]  # pages, up to and with the chunk's own
    estimator: list[int]
    speaker: Tensor  # [bands]
    known: Tensor  # [frames in the chunk, bands], the prompt's mel where it reaches into the chunk
    # The same two by their rows in `FlowStep.voices`, for recorded steps.
    speaker_row: int = 0
    known_row: int = 0


class _Recorded:
    """The graphs of one set, and the frames they write."""

    def __init__(self, device: torch.device, urgent: bool, frames: int, bands: int) -> None:
        self.graphs = GraphSet[Tensor](device, urgent)
        # [streams, frames, bands] of the step that was launched last; padding writes the last row.
        self.frames = torch.zeros(self.graphs.most + 1, frames, bands, device=device)


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
        recorded: bool | None = None,
    ) -> None:
        """`pages` of the conformer and of the estimator; `dtype` of the estimator's products;
        `trace_cpu_steps`: see `StreamSettings`. `recorded`: steps are graphs; default: on a GPU."""
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
        self.recorded = device.type == "cuda" if recorded is None else recorded
        self.voices: VoiceRows | None = None
        if self.recorded:
            rest = -(-(chunk + LOOK_AHEAD - 1) // chunk)  # chunks after a settled prompt
            self.voices = VoiceRows(len(flow.noise), self._frames, rest, device)
        # The rest of a prompt, and the codes of a last piece after a prompt that is not aligned.
        self.most_chunks = -(-(chunk + LOOK_AHEAD - 1 + 2 * chunk + LOOK_AHEAD) // chunk)
        self._sets: dict[bool, _Recorded] = {}
        self._trace_cpu_steps = trace_cpu_steps
        self._trace: Traced[Tensor] | None = None  # on a CPU, of one stream

    @torch.no_grad()
    def __call__(self, streams: Sequence[ChunkInput]) -> Tensor:
        """→ mel [B, bands, T]; frames beyond the end of a last chunk are meaningless."""
        most = BUCKETS[-1]
        batches = [streams[first : first + most] for first in range(0, len(streams), most)]
        return torch.cat([self._batch(batch) for batch in batches])

    @torch.no_grad()
    def launch(
        self, streams: Sequence[ChunkInput], places: Sequence[tuple[int, int]], urgent: bool
    ) -> None:
        """A recorded step of up to `GraphSet.most` streams. The mel of a stream is written to its
        place in `frames`: a row, and the first frame in it."""
        own, count, columns = self._set(urgent), len(streams), self._columns
        rows = bucket_of(count, own.graphs.buckets)
        pinned = self._device.type == "cuda"
        given = torch.empty(rows, self._row_values(), dtype=torch.int32, pin_memory=pinned)
        numbers = given.numpy()
        self._fill_padding(numbers, own)
        for row, stream, place in zip(numbers, streams, places, strict=False):
            row[:_PLACE] = *place, stream.speaker_row, stream.known_row
        self._fill(numbers[:, _PLACE:], streams, columns)
        self._graph(own, rows)(given)

    @torch.no_grad()
    def record(self, rows: int, urgent: bool) -> None:
        """Records the step of this many streams, if it is not recorded. Changes no stream."""
        self._graph(self._set(urgent), rows)

    def frames(self, urgent: bool) -> Tensor:
        """[streams + 1, frames, bands]: what `launch` writes. Later launches of the same set
        overwrite it; the address stays."""
        return self._set(urgent).frames

    def most(self, urgent: bool) -> int:
        """Streams in one recorded step."""
        return self._set(urgent).graphs.most

    @property
    def graphs(self) -> int:
        """How many graphs are recorded."""
        return sum(len(own.graphs) for own in self._sets.values())

    def _set(self, urgent: bool) -> _Recorded:
        if urgent not in self._sets:
            frames, bands = self.most_chunks * self._frames, len(self._flow.noise)
            self._sets[urgent] = _Recorded(self._device, urgent, frames, bands)
        return self._sets[urgent]

    def _graph(self, own: _Recorded, rows: int) -> Callable[[Tensor], Tensor]:
        def padding() -> Tensor:
            numbers = np.empty((rows, self._row_values()), dtype=np.int32)
            self._fill_padding(numbers, own)
            self._fill(numbers[:, _PLACE:], [], self._columns)
            return torch.from_numpy(numbers).to(self._device)

        return own.graphs.get(rows, self._into(own.frames), padding)

    def _row_values(self) -> int:
        return _PLACE + self._chunk + LOOK_AHEAD + 2 + 2 * self._columns

    @staticmethod
    def _fill_padding(numbers: NDArray[np.int32], own: _Recorded) -> None:
        numbers[:, :_PLACE] = own.graphs.most, 0, 0, 0

    def _batch(self, streams: Sequence[ChunkInput]) -> Tensor:
        count = len(streams)
        if self.recorded:
            self.launch(streams, [(row, 0) for row in range(count)], urgent=False)
            return self.frames(urgent=False)[:count, : self._frames].mT.clone()
        # Without a graph, tables are only as long as the longest past.
        columns = 1 + max(stream.index for stream in streams)
        numbers = torch.from_numpy(self._numbers(streams, count, columns)).to(self._device)
        bands = len(self._flow.noise)
        speaker = torch.stack([stream.speaker for stream in streams])
        known = torch.zeros(count, self._frames, bands, device=self._device)
        for row, stream in enumerate(streams):
            if len(stream.known):
                known[row, : len(stream.known)] = stream.known
        return self._on_cpu(numbers, speaker, known)

    @torch.no_grad()
    def compile(self, streams: int) -> None:
        """Computes a step of padding alone, which changes no stream."""
        rows = bucket_of(streams)
        numbers = torch.from_numpy(self._numbers([], rows, self._columns)).to(self._device)
        speaker = torch.zeros(rows, len(self._flow.noise), device=self._device)
        known = torch.zeros(rows, self._frames, len(self._flow.noise), device=self._device)
        self._compute(numbers, speaker, known, *self._memory, reach=1)

    def _into(self, frames: Tensor) -> Callable[[Tensor], Tensor]:
        """`_compute` for a graph that this object owns, with the voices' values by row, and the mel
        written to `frames`. A reference cycle would keep the pool's memory until the garbage
        collector runs."""
        this = weakref.ref(self)

        def compute(numbers: Tensor) -> Tensor:
            step = this()
            assert step is not None
            assert step.voices is not None
            row, first, speaker, known = numbers[:, :_PLACE].long().unbind(1)
            voices = step.voices.speakers[speaker], step.voices.known[known]
            mel = step._compute(numbers[:, _PLACE:], *voices, *step._memory)
            at = first[:, None] + torch.arange(step._frames, device=numbers.device)
            frames[row[:, None], at] = mel.mT
            return frames

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
        numbers = np.empty((rows, self._chunk + LOOK_AHEAD + 2 + 2 * columns), dtype=np.int32)
        self._fill(numbers, streams, columns)
        return numbers

    def _fill(
        self, numbers: NDArray[np.int32], streams: Sequence[ChunkInput], columns: int
    ) -> None:
        """[rows, width] int32, with tables of `columns` entries: see `_compute`. Padding is a
        stream at its start that writes to the scratch page."""
        codes = self._chunk + LOOK_AHEAD
        numbers[:] = 0
        numbers[:, codes] = codes
        numbers[:, codes + 2 :: columns] = SCRATCH_PAGE
        for row, stream in zip(numbers, streams, strict=False):
            row[: len(stream.tokens)] = stream.tokens
            row[codes] = len(stream.tokens)
            row[codes + 1] = stream.index
            for pages, first in (
                (stream.conformer, codes + 2),
                (stream.estimator, codes + 2 + columns),
            ):
                # NumPy reads a list much slower.
                row[first : first + len(pages)] = array("i", pages)

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
        with wide_step(len(numbers) > MOST_OVERLAPPED):
            mel = self._estimator.solve(
                noise, torch.cat(condition, 2), pages, at, self._window
            )  # [B, T, bands]
        return mel.mT

    def _forms(self, dtype: torch.dtype) -> tuple[PageForm, PageForm, PageForm]:
        return page_forms(self._flow, self._chunk, dtype)
