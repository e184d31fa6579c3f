"""The windows of many HiFT streams as recorded graphs, with the states of all streams in slots.

Slots are rows of fixed device memory, and the slot numbers are an input of a graph, which gathers
and scatters the states itself: the host sends three numbers a stream. New frames are read where the
flow has written them. Windows of one length share a graph, first windows apart from those that
follow another. The rule of a window is `Windows.compute`, which `stream` uses too. Knows neither
codes nor the flow. Invariants: a window reads and writes only the slots of its streams and slot 0,
which padding uses; samples of a stream do not depend on the others; nothing here waits for the
device, except when a graph is recorded. Runs on the codec's thread.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.graph_sets import MOST_OVERLAPPED, GraphSet, bucket_of
from mosslive.codec.hift.network import Hift, HiftResult
from mosslive.kernels.graph import Graphed
from mosslive.kernels.wide_steps import wide_step

OVERLAP_FRAMES = 8
SLOTS = 512  # streams at once; 33 KB each at the published sizes
_SCRATCH = 0
# Frames of the longest last window that is recorded: 7 codes after chunks of 5.
_MOST_LAST = 36
LAST_BUCKETS = (1, 2, 4)  # last windows of one length in one graph; more take several


class Windows:
    """HiFT's network with the fade from the window before."""

    def __init__(self, hift: Hift) -> None:
        self.hift = hift
        self.held_samples = OVERLAP_FRAMES * hift.settings.samples_per_frame
        # Symmetric and in float64, as published. The halves add up to 1.08, not 1: a fade is
        # slightly louder, and a sample may reach 1.0692 although the network's limit is 0.99.
        window = torch.hamming_window(
            2 * self.held_samples,
            periodic=False,
            dtype=torch.float64,
            device=hift.conv_pre.weight.device,
        )
        self._rising, self._falling = torch.chunk(window, 2)

    def compute(self, mel: Tensor, noise: Tensor, source: Tensor, held: Tensor) -> HiftResult:
        """mel [G, M, W], noise [G, S · W, H], source and held [G, 0 or 8 · S] → wave, faded in, and
        source, [G, S · W] each."""
        with wide_step(len(mel) > MOST_OVERLAPPED):
            wave, source = self.hift(mel, noise, source)
        return HiftResult(self._fade(held, wave), source)

    def _fade(self, old: Tensor, new: Tensor) -> Tensor:
        """From old [G, n] to new [G, m], over the first n samples; n is 0 for first windows."""
        length = old.shape[1]
        if not length:
            return new
        faded = new[:, :length] * self._rising + old * self._falling  # in float64
        return torch.cat((faded.to(new.dtype), new[:, length:]), 1)


@dataclass(eq=False)
class ArenaStream:
    """One stream; created by `HiftArena.open`."""

    slot: int
    generator: torch.Generator | None  # of its noise; None: no noise
    follows: bool = False  # a window was rendered, so the next one begins with its end


class Window(NamedTuple):
    """The next window of one stream: `new` frames of row `row` of the flow's frames."""

    stream: ArenaStream
    row: int
    begin: int
    new: int
    last: bool


class _Set:
    """The graphs of one set, and the noise they read."""

    def __init__(self, device: torch.device, urgent: bool, values: int) -> None:
        """`values` of noise of one usual window."""
        self.graphs = GraphSet[Tensor](device, urgent)
        self.noise = torch.zeros(self.graphs.most * values, device=device)


class HiftArena:
    def __init__(self, windows: Windows, frames: int, slots: int = SLOTS) -> None:
        """`frames`: new ones of a usual window."""
        hift, self._windows, self._frames = windows.hift, windows, frames
        self._hift = hift
        self.device = hift.window.device
        count, held, like = slots + 1, windows.held_samples, hift.window
        self._mels = like.new_zeros(count, hift.settings.mel_bins, OVERLAP_FRAMES)
        self._sources, self._waves = like.new_zeros(count, held), like.new_zeros(count, held)
        if self.device.type == "cuda":  # steps on other CUDA streams use them
            torch.cuda.current_stream(self.device).synchronize()
        self._free = list(range(slots, _SCRATCH, -1))
        self._sets: dict[bool, _Set] = {}
        self._draws: dict[int, Callable[[Tensor, torch.Generator], None]] = {}

    def open(self, generator: torch.Generator | None) -> ArenaStream:
        """Raises `PoolFull` if no slot is free."""
        if not self._free:
            raise PoolFull(f"{len(self._mels) - 1} replies are open; close some to open another")
        return ArenaStream(self._free.pop(), generator)

    def close(self, stream: ArenaStream) -> None:
        """Frees the slot; the device must be done with it. Idempotent."""
        if stream.slot != _SCRATCH:
            self._free.append(stream.slot)
            stream.slot = _SCRATCH

    @property
    def used(self) -> int:
        return len(self._mels) - 1 - len(self._free)

    @property
    def graphs(self) -> int:
        """How many graphs are recorded."""
        return sum(len(own.graphs) for own in self._sets.values())

    def samples(self, window: Window) -> int:
        """How many samples the window settles: its end is held back, except at the stream's."""
        settled = OVERLAP_FRAMES * window.stream.follows + window.new
        if not window.last:
            settled -= OVERLAP_FRAMES
        return settled * self._hift.settings.samples_per_frame

    @torch.no_grad()
    def launch(
        self, windows: Sequence[Window], frames: Tensor, urgent: bool
    ) -> Iterator[tuple[list[int], Tensor]]:
        """frames [rows, T, M]; the last row is for padding. → for each graph: the places in
        `windows` of its members, and their whole waves [members, S · W]. The next graph overwrites
        a wave: copy it before the next one is taken. The streams have then moved on."""
        groups: dict[tuple[bool, int], list[int]] = {}
        for place, window in enumerate(windows):
            groups.setdefault((window.stream.follows, window.new), []).append(place)
        for (follows, new), places in groups.items():
            usual = new == self._frames
            own = self._set(urgent)
            buckets = own.graphs.buckets if usual else LAST_BUCKETS
            for first in range(0, len(places), buckets[-1]):
                some = places[first : first + buckets[-1]]
                members = [windows[place] for place in some]
                rows = bucket_of(len(some), buckets)
                yield some, self._launch(own, members, follows, new, rows, frames)[: len(some)]
                for window in members:
                    window.stream.follows = True

    def is_recorded(self, new: int, follows: bool) -> bool:
        """Whether windows of so many new frames have graphs; rare and long ones have none."""
        return new == self._frames or new + OVERLAP_FRAMES * follows <= _MOST_LAST

    @torch.no_grad()
    def record(self, rows: int, new: int, follows: bool, frames: Tensor, urgent: bool) -> None:
        """Records the graph of `rows` windows with `new` frames each, if it is not recorded."""
        self._graph(self._set(urgent), rows, new, follows, frames)
        self._drawing(new + OVERLAP_FRAMES * follows)

    def _launch(
        self,
        own: _Set,
        members: list[Window],
        follows: bool,
        new: int,
        rows: int,
        frames: Tensor,
    ) -> Tensor:
        length = new + OVERLAP_FRAMES * follows
        numbers = torch.empty(rows, 3, dtype=torch.int32, pin_memory=self.device.type == "cuda")
        array = numbers.numpy()
        array[:] = _SCRATCH, len(frames) - 1, 0
        for row, window in zip(array, members, strict=False):
            row[:] = window.stream.slot, window.row, window.begin
        generators = [window.stream.generator for window in members]
        if not self.is_recorded(new, follows):
            noise = self._waves.new_zeros(rows, *self._hift.noise_shape(length))
            self._draw(noise, generators, length)
            compute = self._computing(frames, noise, new, follows)
            return compute(numbers.to(self.device, non_blocking=True))
        graph = self._graph(own, rows, new, follows, frames)
        self._draw(self._noise(own, rows, length), generators, length)
        return graph(numbers)

    def _graph(
        self, own: _Set, rows: int, new: int, follows: bool, frames: Tensor
    ) -> Graphed[Tensor]:
        def padding() -> Tensor:
            self._hift.conv_pre.settle(self._mels)  # before a recording, it moves weights
            nothing = torch.tensor([[_SCRATCH, len(frames) - 1, 0]], dtype=torch.int32)
            return nothing.repeat(rows, 1).to(self.device)

        noise = self._noise(own, rows, new + OVERLAP_FRAMES * follows)
        compute = self._computing(frames, noise, new, follows)
        return own.graphs.get((rows, new, follows, frames.data_ptr()), compute, padding)

    def _computing(
        self, frames: Tensor, noise: Tensor, new: int, follows: bool
    ) -> Callable[[Tensor], Tensor]:
        """numbers [G, 3]: slots, rows of `frames` and first frames → waves [G, S · W]."""
        windows, mels, sources, waves = self._windows, self._mels, self._sources, self._waves

        def compute(numbers: Tensor) -> Tensor:
            slot, row, begin = numbers.long().unbind(1)
            at = begin[:, None] + torch.arange(new, device=numbers.device)
            mel = frames[row[:, None], at].mT.to(mels.dtype)  # [G, M, new]
            if follows:
                mel = torch.cat((mels[slot], mel), 2)
            source, held = (
                (each[slot] if follows else each[slot, :0]) for each in (sources, waves)
            )
            wave, source = windows.compute(mel, noise, source, held)
            if mel.shape[2] >= OVERLAP_FRAMES:  # otherwise it is the last one
                mels[slot] = mel[:, :, -OVERLAP_FRAMES:]
                sources[slot] = source[:, -windows.held_samples :]
                waves[slot] = wave[:, -windows.held_samples :]
            return wave

        return compute

    def _set(self, urgent: bool) -> _Set:
        if urgent not in self._sets:
            samples, sines = self._hift.noise_shape(OVERLAP_FRAMES + self._frames)
            self._sets[urgent] = _Set(self.device, urgent, samples * sines)
        return self._sets[urgent]

    def _noise(self, own: _Set, rows: int, length: int) -> Tensor:
        """[rows, S · W, H], always at the same address."""
        samples, sines = self._hift.noise_shape(length)
        return own.noise[: rows * samples * sines].view(rows, samples, sines)

    def _draw(
        self, noise: Tensor, generators: Sequence[torch.Generator | None], length: int
    ) -> None:
        for row, generator in zip(noise, generators, strict=False):
            if generator is None:
                row.zero_()
                continue
            self._drawing(length)(row, generator)

    def _drawing(self, length: int) -> Callable[[Tensor, torch.Generator], None]:
        if length not in self._draws:
            self._draws[length] = self._hift.m_source.drawing(length, self.device)
        return self._draws[length]
