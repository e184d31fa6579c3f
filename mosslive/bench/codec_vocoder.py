"""Times of BigVGAN: a chunk of about 100 ms, as a window and as a stream step, and 10 s at once.

Knows no mel of real sound: frames are random. Invariant: every output, in whatever form, is
compared with the same samples of one offline pass on the CPU.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from mosslive.bench.codec_check import HALVES, Form, Row, compare, timed
from mosslive.bench.codec_networks import Pair, normal
from mosslive.codec.bigvgan import BigVgan
from mosslive.codec.bigvgan_stream import BigVganState, advance
from mosslive.kernels.arithmetic import Precision, arithmetic
from mosslive.kernels.graph import Graphed

CHUNK_FRAMES = 10
GOAL_CHUNK_MS = 4.0
GOAL_REAL_TIME = 800  # for 10 s
_LONG_SECONDS = 10


def vocoder_rows(pair: Pair, repeats: int) -> Iterator[Row]:
    cpu, device = pair.bigvgan()
    frames = _LONG_SECONDS * cpu.sample_rate // cpu.hop
    mel = normal(3, 1, cpu.config.num_mels, frames)  # [1, bands, T]
    begin = mel[..., : 2 * (cpu.reach.behind + cpu.reach.ahead) + 3 * CHUNK_FRAMES]
    # What these frames determine whatever follows: the reference of everything.
    wanted = cpu(begin)[:, : -cpu.hop * cpu.reach.ahead]
    for precision in ("fp32", "tf32", "bf16"):
        dtype = HALVES.get(precision, torch.float32)
        run = _Run(device.to(dtype), mel.to(pair.device, dtype), wanted, precision, pair.device)
        with torch.no_grad(), arithmetic(precision, trials=True):
            yield from run.chunk_rows("window with context", *run.window(), repeats)
            yield from run.chunk_rows("stream step", *run.stream(), repeats)
            yield from run.long_rows(repeats)


class _Run:
    def __init__(
        self, network: BigVgan, mel: Tensor, wanted: Tensor, precision: Precision, place: str
    ) -> None:
        self._network, self._mel, self._wanted = network, mel, wanted
        self._precision, self._place = precision, place
        self._hop, self._reach = network.hop, network.reach

    def window(self) -> tuple[Callable[[Tensor], Tensor], Tensor, int]:
        """(function of frames, the frames, index of the first sample it gives)."""
        hop, behind = self._hop, self._reach.behind
        span = behind + CHUNK_FRAMES + self._reach.ahead

        def work(frames: Tensor) -> Tensor:
            wave: Tensor = self._network(frames)
            return wave[:, hop * behind : hop * (behind + CHUNK_FRAMES)]

        # From a frame on that has all its context: the ends of the mel are not the usual case.
        return (
            work,
            self._mel[..., CHUNK_FRAMES : CHUNK_FRAMES + span],
            hop * (CHUNK_FRAMES + behind),
        )

    def stream(self) -> tuple[Callable[[Tensor], Tensor], Tensor, int]:
        """The same, for a stream whose layers are full. A step leaves the state where it was."""
        state, at = BigVganState(), 0
        while True:
            frames = self._mel[..., at : at + CHUNK_FRAMES]
            _, following = advance(self._network, state, frames)
            if [k.shape for k in following.kept] == [k.shape for k in state.kept]:
                break
            state, at = following, at + CHUNK_FRAMES

        kept = [torch.empty_like(tensor) for tensor in state.kept]  # what the next step would read

        def work(frames: Tensor) -> Tensor:
            wave, after = advance(self._network, state, frames)
            torch._foreach_copy_(kept, list(after.kept))
            return wave

        return work, frames, state.samples

    def chunk_rows(
        self,
        name: str,
        work: Callable[[Tensor], Tensor],
        frames: Tensor,
        first_sample: int,
        repeats: int,
    ) -> Iterator[Row]:
        wanted = self._wanted[:, first_sample : first_sample + self._hop * CHUNK_FRAMES]
        what = f"{CHUNK_FRAMES} frames, {name}"
        yield from self._rows(what, work, frames, wanted, CHUNK_FRAMES, GOAL_CHUNK_MS, repeats)

    def long_rows(self, repeats: int) -> Iterator[Row]:
        frames = self._mel.shape[-1]
        goal_ms = self._sound_ms(frames) / GOAL_REAL_TIME
        what = f"{_LONG_SECONDS} s, offline"
        yield from self._rows(
            what, self._network, self._mel, self._wanted, frames, goal_ms, repeats
        )

    def _rows(
        self,
        what: str,
        work: Callable[[Tensor], Tensor],
        given: Tensor,
        wanted: Tensor,
        frames: int,
        goal_ms: float,
        repeats: int,
    ) -> Iterator[Row]:
        forms: dict[Form, Callable[[Tensor], Tensor]] = {
            "eager": work,
            "graph": Graphed(work, given),
        }
        for form, function in forms.items():
            ours = function(given)[:, : wanted.shape[1]]
            close = compare(f"BigVGAN, {what}, {self._precision}, {form}", ours, wanted)
            sound_ms = self._sound_ms(frames)
            row = Row(
                "BigVGAN", what, 1, self._precision, form, close.error, close.cosine, sound_ms
            )
            row = replace(row, goal_ms=goal_ms)
            yield timed(row, partial(function, given), self._place, repeats)

    def _sound_ms(self, frames: int) -> float:
        return 1e3 * frames * self._hop / self._network.sample_rate
