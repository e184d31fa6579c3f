"""A step of many replies that is on its way: launched, and read back when the device is done.

`launch_recorded` runs flow and vocoder as graphs and copies the samples to pinned memory, without
waiting; `launch_plain` computes one network after the other and is the definition, for a CPU and
for vocoders without recorded windows. Knows pieces of replies and streams of a vocoder, not the
replies' queues. Invariants: both give the same samples; what a step still reads or writes on the
device is freed only after it (`Flight.afterwards`). Runs on the codec's thread.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.codec.conformer import FRAMES_PER_TOKEN, LOOK_AHEAD
from mosslive.codec.flow_stream import FlowStream
from mosslive.codec.graph_sets import buckets_for, buckets_of, urgent_stream
from mosslive.codec.hift.arena import LAST_BUCKETS, HiftArena, Window
from mosslive.codec.mel_source import CachedMel, Piece, step_together
from mosslive.codec.vocoder import Vocoder
from mosslive.kernels.arithmetic import arithmetic

Samples = NDArray[np.float32]
_NOTHING = np.zeros(0, dtype=np.float32)


class Done(Protocol):
    """The used part of `torch.cuda.Event`."""

    def query(self) -> bool: ...
    def synchronize(self) -> None: ...


class Job(NamedTuple):
    """One reply's part of a step."""

    reply: Any
    piece: Piece
    stream: Any  # of the vocoder, or of its arena


class Flight:
    """A step on the device, and what waits for its end."""

    def __init__(self, done: Done | None, urgent: bool) -> None:
        """`done`: None: it is. `urgent`: the set of graphs that runs."""
        self.done, self.urgent = done, urgent
        self._afterwards: list[Callable[[], None]] = []
        self._over = done is None

    def over(self) -> bool:
        """Whether the device is done, or has failed. Does not wait."""
        if not self._over:
            assert self.done is not None
            try:
                if not self.done.query():
                    return False
            except RuntimeError:  # `wait` raises it
                return True
            self._finish()
        return True

    def wait(self) -> None:
        """Raises what has failed on the device."""
        if not self._over and self.done is not None:
            self.done.synchronize()
            self._finish()

    def afterwards(self, work: Callable[[], None]) -> None:
        """Runs `work` when the device is done; at once if it is."""
        if self.over():
            work()
        else:
            self._afterwards.append(work)

    def _finish(self) -> None:
        self._over = True
        todo, self._afterwards = self._afterwards, []
        for work in todo:
            work()


class Rendering:
    """One step of some replies. `result` gives the samples that it settles, possibly none."""

    def __init__(self, sounds: dict[Any, Samples], flight: Flight) -> None:
        """sounds: [n] each, on the host, valid at the end of the flight."""
        self._sounds, self.flight = sounds, flight
        self._samples: dict[Any, Samples] | None = None

    def ready(self) -> bool:
        """Whether `result` need not wait."""
        return self.flight.over()

    def result(self) -> dict[Any, Samples]:
        """Waits for the device. Raises what has failed there. Replies that were cancelled in the
        meantime are left out."""
        self.flight.wait()
        if self._samples is None:
            # Copies: a view would keep the pinned memory of all replies.
            self._samples = {reply: sound.copy() for reply, sound in self._sounds.items()}
            self._sounds = {}
        return {reply: one for reply, one in self._samples.items() if not reply.cancelled}


@torch.no_grad()
def launch_plain(jobs: Sequence[Job], vocoder: Vocoder, urgent: bool) -> Rendering:
    """Computes the jobs on the current CUDA stream, or on the CPU."""
    mels = step_together([job.piece for job in jobs])
    made: dict[int, Tensor] = {}
    for last, work in ((False, vocoder.push), (True, vocoder.finish)):
        rows = [row for row, job in enumerate(jobs) if job.piece.last == last]
        waves = work([jobs[row].stream for row in rows], [mels[row] for row in rows])
        made |= zip(rows, waves, strict=True)
    ordered = [made[row] for row in range(len(jobs))]
    joined = _to_host(torch.cat(ordered))
    ends = np.cumsum([len(wave) for wave in ordered])
    sounds = np.split(joined, ends[:-1])
    flight = Flight(event_on(vocoder.device), urgent)
    return Rendering(dict(zip([job.reply for job in jobs], sounds, strict=True)), flight)


@torch.no_grad()
def launch_recorded(
    jobs: Sequence[Job], arena: HiftArena, urgent: bool, before: Sequence[Flight]
) -> Rendering:
    """Launches the jobs, all with streams of this arena and cached mel of one flow stream.
    `before`: steps of the same replies that may be in flight on the other CUDA stream."""
    stream = _flow_of(jobs[0])
    device = stream.flow.noise.device
    sounds: dict[Any, Samples] = {job.reply: _NOTHING for job in jobs}
    with _cuda_stream(device, urgent):
        for earlier in before:
            if isinstance(earlier.done, torch.cuda.Event):
                earlier.done.wait()
        most = stream.most(urgent)
        for first in range(0, len(jobs), most):
            sounds |= _launch(jobs[first : first + most], stream, arena, urgent)
        flight = Flight(event_on(device), urgent)
    for job in jobs:  # the device may still read the pages before a window
        state = _source_of(job).state
        if old := stream.old_chunks(state):
            flight.afterwards(partial(state.estimator.drop_before, old))
    return Rendering(sounds, flight)


def recordings(stream: FlowStream, arena: HiftArena, replies: int) -> list[Callable[[], None]]:
    """Short pieces of work that record every graph of up to so many replies, the largest first
    because the others fit into its memory. They render nothing and need no pages."""
    chunk, pieces = stream.settings.chunk, list[Callable[[], None]]()
    usual = FRAMES_PER_TOKEN * chunk

    def window(rows: int, new: int, follows: bool, urgent: bool) -> None:
        with _cuda_stream(arena.device, urgent), arithmetic("fp32"):
            arena.record(rows, new, follows, stream.frames(urgent), urgent)

    def flow(rows: int, urgent: bool) -> None:
        with _cuda_stream(arena.device, urgent), arithmetic("fp32"):
            stream.record(rows, urgent)

    for urgent in (False, True):
        for rows in reversed(buckets_for(replies, buckets_of(urgent))):
            pieces.append(partial(flow, rows, urgent))
            pieces += [partial(window, rows, usual, follows, urgent) for follows in (True, False)]
    # Ends after a chunk have the codes of the look-ahead at least. A reply without a chunk is its
    # own first sound.
    for least, follows in ((LOOK_AHEAD, True), (1, False)):
        for codes in range(least, chunk + LOOK_AHEAD):
            new = FRAMES_PER_TOKEN * codes
            if new == usual or not arena.is_recorded(new, follows):
                continue
            for rows in reversed(buckets_for(replies, LAST_BUCKETS)):
                pieces.append(partial(window, rows, new, follows, False))
            if not follows:
                pieces.append(partial(window, 1, new, follows, True))
    return pieces


def _launch(
    jobs: Sequence[Job], stream: FlowStream, arena: HiftArena, urgent: bool
) -> dict[Any, Samples]:
    frames = stream.frames(urgent)
    moves = {row: job.piece.move for row, job in enumerate(jobs) if job.piece.move}
    begins = stream.launch(list(moves.values()), list(moves), urgent)
    places = {
        row: (begin, move.frames) for (row, move), begin in zip(moves.items(), begins, strict=True)
    }
    for row in range(len(jobs)):
        if row not in places:  # the whole reply once more
            mel = stream.whole_tail(_source_of(jobs[row]).state, jobs[row].piece.codes)
            frames[row, : mel.shape[1]] = mel.mT
            places[row] = 0, mel.shape[1]
    windows, owners = [], []
    for row, job in enumerate(jobs):
        begin, new = places[row]
        if new:  # otherwise only the end of the prompt is computed
            windows.append(Window(job.stream, row, begin, new, job.piece.last))
            owners.append(job.reply)
    counts, sounds = [arena.samples(window) for window in windows], {}
    for members, wave in arena.launch(windows, frames, urgent):
        host = _to_host(wave)
        for row, member in enumerate(members):
            sounds[owners[member]] = host[row, : counts[member]]
    return sounds


def event_on(device: torch.device) -> Done | None:
    """An event after all work so far on the current CUDA stream; None on a CPU."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


def _to_host(tensor: Tensor) -> Samples:
    """Without waiting. PyTorch does not reuse pinned memory that a copy still writes."""
    host = torch.empty(tensor.shape, pin_memory=tensor.is_cuda)
    samples: Samples = host.copy_(tensor, non_blocking=True).numpy()
    return samples


def _cuda_stream(device: torch.device, urgent: bool) -> AbstractContextManager[Any]:
    if device.type != "cuda" or not urgent:
        return nullcontext()
    return torch.cuda.stream(urgent_stream(device))


def _source_of(job: Job) -> CachedMel:
    assert isinstance(job.piece.source, CachedMel)
    return job.piece.source


def _flow_of(job: Job) -> FlowStream:
    return _source_of(job).stream
