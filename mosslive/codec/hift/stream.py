"""HiFT on a mel that arrives in pieces: overlapping windows, joined by a cross-fade.

The published window rule, for several streams at once. Each window begins with the last frames of
the one before, reuses their source and fades from its waveform; the end of a window is held back
until the next one has faded it. This is not the offline waveform: the phase restarts in each
window. Knows nothing of codes or of the flow. Invariants: a finished stream has returned exactly
480 samples per frame; no sample is faded twice; the samples of a stream do not depend on the
others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mosslive.codec.graph_sets import BUCKETS, bucket_of
from mosslive.codec.hift.arena import OVERLAP_FRAMES, HiftArena, Windows
from mosslive.codec.hift.network import Hift, HiftResult
from mosslive.codec.hift.noise_ahead import Drawn, draw_ahead, take
from mosslive.codec.mel import FLOW_MEL, MelSettings
from mosslive.errors import MossliveError
from mosslive.kernels.graph import Graphed
from mosslive.kernels.trace import Traced

_CHUNK_FRAMES = (20, 100)  # new frames in the window of a chunk of 5 codes, and of 25
_LAST_FRAMES = tuple(range(4, 29, 4))  # new frames of a last window after chunks of 5: 1 to 7 codes
_MOST_FRAMES = 108  # most new frames of a last window after chunks of 25


@dataclass(eq=False)  # compared by identity; tensors have no single truth value
class HiftState:
    """One stream, S = 480. The first three are empty until a window was rendered."""

    mel: Tensor  # [1, M, 8], the end of the last window
    source: Tensor  # [1, 8 · S], as used in the last window
    wave: Tensor  # [1, 8 · S], faded in but not out, and not returned yet
    waiting: Tensor  # [1, M, 0 to 7], frames that were in no window yet
    generator: torch.Generator | None  # of this stream's noise; None: no noise
    expected: int = 0  # new frames that most of the next windows have; 0: unknown
    drawn: Drawn | None = None  # noise of the next window, if that is as expected


class HiftStream:
    def __init__(self, hift: Hift, trace_cpu_steps: bool = True) -> None:
        """`trace_cpu_steps`: on a CPU, record windows of one stream and run the recordings."""
        self.hift, self._trace_cpu_steps = hift, trace_cpu_steps
        self._windows_net = Windows(hift)
        self._held_samples = self._windows_net.held_samples
        self._arenas: dict[int, HiftArena] = {}

    @property
    def mel_settings(self) -> MelSettings:
        return FLOW_MEL

    @property
    def device(self) -> torch.device:
        return self.hift.window.device

    @property
    def delay_frames(self) -> int:
        return OVERLAP_FRAMES

    def warm_chunks(self, frames: int) -> int:
        """A first window and a later one."""
        return 2

    def whole(self, mel: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """mel [M, T] → samples [S · T], in one window."""
        result: HiftResult = self.hift(mel[None], generator)
        return result.wave[0]

    def open(self, generator: torch.Generator | None = None, expected: int = 0) -> HiftState:
        """A stream that has received nothing. `expected`: new frames of most of its windows, so
        that their noise can be drawn ahead."""
        state = HiftState(*self._nothing(), generator, expected)
        self._expect(state)
        return state

    def arena(self, frames: int) -> HiftArena | None:
        """Slots for streams whose windows have this many new frames, on a GPU."""
        if self.device.type != "cuda" or not self.hift.dispatch(self.hift.window).is_triton:
            return None
        if frames < OVERLAP_FRAMES:
            return None
        if frames not in self._arenas:
            self._arenas[frames] = HiftArena(self._windows_net, frames)
        return self._arenas[frames]

    def push(
        self,
        states: Sequence[HiftState],
        mels: Sequence[Tensor],
        noises: Sequence[Tensor] | None = None,
    ) -> list[Tensor]:
        """New frames [M, n] of each stream → the samples [k] that these settle.

        Fewer than 8 new frames wait for the next call: otherwise samples would be faded twice.
        noises: [S · W, H] for the whole window of each stream, cached and waiting frames included,
        in place of its generator's; not used where frames only wait.
        """
        windows = self._windows(states, mels)
        caches = [state.mel.shape[-1] for state in states]
        ready = [k for k, w in enumerate(windows) if w.shape[-1] >= caches[k] + OVERLAP_FRAMES]
        rendered = self._render(states, windows, ready, noises)
        pieces, held = [], self._held_samples
        for k, state in enumerate(states):
            if k not in rendered:
                state.waiting = windows[k][..., caches[k] :]
                pieces.append(state.wave[0, :0])
                continue
            wave, source = rendered[k]
            # Copies: a view would keep the memory of all windows of the batch.
            state.mel = windows[k][..., -OVERLAP_FRAMES:].clone()
            state.source, state.wave = source[:, -held:].clone(), wave[:, -held:].clone()
            state.waiting = state.mel[..., :0]
            self._expect(state)
            pieces.append(wave[0, :-held])
        return pieces

    def finish(
        self,
        states: Sequence[HiftState],
        mels: Sequence[Tensor],
        noises: Sequence[Tensor] | None = None,
    ) -> list[Tensor]:
        """The last frames [M, n] of each stream, n may be 0 → all samples that are left. The
        streams are then as newly opened, except that their generators have advanced."""
        windows = self._windows(states, mels)
        ready = [k for k, window in enumerate(windows) if window.shape[-1]]
        rendered = self._render(states, windows, ready, noises)
        pieces = []
        for k, state in enumerate(states):
            pieces.append(rendered[k].wave[0] if k in rendered else state.wave[0])
            state.mel, state.source, state.wave, state.waiting = self._nothing()
            state.drawn = None
        return pieces

    def _nothing(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        like = self.hift.window
        mel, samples = like.new_empty(1, self.hift.settings.mel_bins, 0), like.new_empty(1, 0)
        return mel, samples, samples, mel

    def _windows(self, states: Sequence[HiftState], mels: Sequence[Tensor]) -> list[Tensor]:
        """Cached, waiting and new frames of each stream, [1, M, W]."""
        if len(states) != len(mels):
            raise MossliveError(f"HiFT: {len(mels)} mels for {len(states)} streams")
        if len(set(states)) != len(states):
            raise MossliveError("HiFT: a stream may be given only once per call")
        bins = self.hift.settings.mel_bins
        for mel in mels:
            if mel.dim() != 2 or mel.shape[0] != bins:
                raise MossliveError(
                    f"HiFT: mel {list(mel.shape)} of a stream; allowed: [{bins}, n]"
                )
        return [
            torch.cat((state.mel, state.waiting, mel[None].to(state.mel.dtype)), -1)
            for state, mel in zip(states, mels, strict=True)
        ]

    def _render(
        self,
        states: Sequence[HiftState],
        windows: list[Tensor],
        ready: list[int],
        noises: Sequence[Tensor] | None,
    ) -> dict[int, HiftResult]:
        """The windows of the ready streams, faded in; those of one length, first ones apart, share
        a call. Changes no state but the generators and what was drawn ahead."""
        noise = {
            k: self._draw(states[k], windows[k].shape[-1])
            if noises is None
            else self._given(noises, k, windows[k].shape[-1])
            for k in ready
        }
        groups: dict[tuple[int, int], list[int]] = {}
        for k in ready:
            groups.setdefault((states[k].mel.shape[-1], windows[k].shape[-1]), []).append(k)
        rendered = {}
        for members in groups.values():
            mel = torch.cat([windows[k] for k in members])  # [G, M, W]
            source = torch.cat([states[k].source for k in members])  # [G, 0 or 8 · S]
            held = torch.cat([states[k].wave for k in members])
            wave, source = self._window(mel, torch.stack([noise[k] for k in members]), source, held)
            for row, k in enumerate(members):
                one = slice(row, row + 1)
                rendered[k] = HiftResult(wave[one], source[one])
        return rendered

    def _window(self, mel: Tensor, noise: Tensor, source: Tensor, held: Tensor) -> HiftResult:
        """mel [G, M, W], noise [G, S · W, H], source and held [G, 0 or 8 · S] → wave, faded in, and
        source, [G, S · W] each. On a GPU the usual windows are graphs: those of a chunk, first or
        later, for some numbers of streams, padded with rows of silence, and those of the end of a
        single stream."""
        given, count = (mel, noise, source, held), len(mel)
        if not self.hift.dispatch(mel).is_triton:
            return self._on_cpu(*given)
        if not is_recorded(count, mel.shape[2], bool(source.shape[1])):
            return self._compute(*given)
        rows = bucket_of(count)
        padded = [_with_rows(each, rows) for each in given]
        key = (rows, mel.shape[2], source.shape[1])  # 0 source samples: a first window
        self.hift.conv_pre.settle(mel)  # before a graph is recorded, because it moves the weights
        weight = self.hift.conv_pre.weight
        graph = self.hift.recordings.get(weight, key, lambda: Graphed(self._compute, *padded))
        wave, source = graph(*padded)
        return HiftResult(wave[:count].clone(), source[:count].clone())

    def _on_cpu(self, *given: Tensor) -> HiftResult:
        """Runs windows of one stream as traces: one for first windows and one for later windows,
        each for all lengths. Only the window of a chunk starts a recording: that takes as long as
        the sound of several chunks, and a reply without a chunk ends before."""
        mel, _, source, _ = given
        frames, follows = mel.shape[2], bool(source.shape[1])
        new, weight = frames - OVERLAP_FRAMES * follows, self.hift.conv_pre.weight
        recorded, key = self.hift.recordings, ("window", follows)
        wanted = new in _CHUNK_FRAMES or (new <= _MOST_FRAMES and recorded.has(weight, key))
        traced = self._trace_cpu_steps and mel.device.type == "cpu"
        if len(mel) > 1 or not wanted or not traced:
            return self._compute(*given)
        trace = recorded.get(weight, key, lambda: Traced(self._compute, *given))
        return HiftResult(*trace(*given))

    def _compute(self, mel: Tensor, noise: Tensor, source: Tensor, held: Tensor) -> HiftResult:
        return self._windows_net.compute(mel, noise, source, held)

    def _draw(self, state: HiftState, frames: int) -> Tensor:
        """[S · frames, H]"""
        if state.generator is None:
            return state.wave.new_zeros(self.hift.noise_shape(frames))
        drawn, state.drawn = state.drawn, None
        return take(drawn, self.hift.m_source.draw_noise, frames, state.generator)

    def _expect(self, state: HiftState) -> None:
        """Starts to draw the noise of the next window, on a CPU, where that takes time."""
        generator = state.generator
        if not state.expected or generator is None or state.wave.device.type != "cpu":
            return
        frames, draw = state.mel.shape[-1] + state.expected, self.hift.m_source.draw_noise
        state.drawn = draw_ahead(draw, frames, generator)

    def _given(self, noises: Sequence[Tensor], k: int, frames: int) -> Tensor:
        allowed = self.hift.noise_shape(frames)
        if len(noises) <= k or tuple(noises[k].shape) != allowed:
            found = list(noises[k].shape) if k < len(noises) else "absent"
            raise MossliveError(f"HiFT: noise of stream {k} {found}; allowed: {list(allowed)}")
        return noises[k]


def is_recorded(streams: int, frames: int, follows: bool) -> bool:
    """Whether a GPU records a graph for `streams` windows of `frames` frames. `follows`: they begin
    with the end of an earlier window."""
    new = frames - (OVERLAP_FRAMES if follows else 0)
    alone = streams == 1 and new in _LAST_FRAMES
    return alone or (streams <= BUCKETS[-1] and new in _CHUNK_FRAMES)


def _with_rows(tensor: Tensor, rows: int) -> Tensor:
    missing = rows - len(tensor)
    return torch.cat((tensor, tensor.new_zeros(missing, *tensor.shape[1:]))) if missing else tensor
