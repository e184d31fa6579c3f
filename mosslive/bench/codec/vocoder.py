"""Times BigVGAN: a chunk of about 100 ms, as a window and as a stream, and 10 s at once.

The reference form is the network as published: plain PyTorch operations, no kernels of ours, a
window with all its context for each chunk. The mel frames are random. Invariant: every output is
compared with the same samples of one offline pass on the CPU.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from mosslive.bench.codec.check import HALVES, Form, Row, compare, timed
from mosslive.bench.codec.networks import NetworkPair, normal
from mosslive.bench.codec.precompile import CompileJob, compiling
from mosslive.codec.bigvgan import BigVgan
from mosslive.codec.convolution import compute_in
from mosslive.codec.random_networks import CODEC_SIZES, empty_bigvgan
from mosslive.kernels.arithmetic import Precision, arithmetic
from mosslive.kernels.dispatch import TORCH_ONLY
from mosslive.kernels.graph import Graphed

CHUNK_FRAMES = 10
GOAL_CHUNK_MS = 4.0
GOAL_REAL_TIME = 800  # for 10 s
STREAMS: dict[Precision, tuple[int, ...]] = {"fp32": (1,), "fp16": (1, 8)}  # together
_LONG_SECONDS = 10
_PROCESSES = 7  # to compile the kernels of one precision
_PUBLISHED: tuple[Precision, ...] = (
    "fp32",
    "tf32",
)  # tf32, on GPUs only, is the default of PyTorch
_OURS: tuple[Precision, ...] = ("fp32", "fp16")


def vocoder_rows(pair: NetworkPair, repeats: int) -> Iterator[Row]:
    shapes = empty_bigvgan(CODEC_SIZES[pair.size])
    frames, reach = _LONG_SECONDS * shapes.sample_rate // shapes.hop, shapes.reach
    with compiling(
        pair.size, pair.device, _jobs((reach.behind + CHUNK_FRAMES + reach.ahead, frames))
    ):
        cpu, device = pair.bigvgan()
        mel = normal(3, 1, cpu.config.num_mels, frames)  # [1, bands, T]
        begin = mel[..., : 2 * (reach.behind + reach.ahead) + 3 * CHUNK_FRAMES]
        # The samples that do not depend on later frames: the reference for every row.
        wanted = cpu(begin)[:, : -cpu.hop * reach.ahead]
        here = mel.to(pair.device)
    with torch.no_grad():
        # First, while the weights still have the published memory layout.
        definitions = BigVgan.from_tensors(device.state_dict(), device.config, TORCH_ONLY)
        for precision in _PUBLISHED if pair.device == "cuda" else _PUBLISHED[:1]:
            run = _Run(definitions, here, wanted, precision, pair.device)
            with arithmetic(precision):
                yield from run.window_rows("reference form", repeats, graph=False)
                yield from run.long_rows("reference form", repeats, graph=False)
        for precision in _OURS:
            compute_in(device, HALVES.get(precision, torch.float32))
            run = _Run(device, here, wanted, precision, pair.device)
            yield from run.window_rows("window with context", repeats)
            for streams in STREAMS[precision]:
                yield run.stream_row(streams, repeats)
            yield from run.long_rows("offline", repeats)


def _jobs(frames: tuple[int, ...]) -> list[CompileJob]:
    """Returns the jobs of our precisions, split into processes of about equal duration."""
    jobs = []
    for precision in _OURS:
        whole = CompileJob("bigvgan", precision, STREAMS[precision], frames, CHUNK_FRAMES)
        jobs += whole.split(_PROCESSES)
    return jobs


class _Run:
    def __init__(
        self, network: BigVgan, mel: Tensor, wanted: Tensor, precision: Precision, place: str
    ) -> None:
        self._network, self._mel, self._wanted = network, mel, wanted
        self._precision, self._place = precision, place
        self._hop, self._reach = network.hop, network.reach

    def window_rows(self, name: str, repeats: int, graph: bool = True) -> Iterator[Row]:
        work, frames, first = self.window()
        wanted = self._wanted[:, first : first + self._hop * CHUNK_FRAMES]
        what = f"{CHUNK_FRAMES} frames, {name}"
        goal = GOAL_CHUNK_MS if graph else None
        yield from self._rows(what, work, frames, wanted, CHUNK_FRAMES, goal, repeats, graph)

    def window(self) -> tuple[Callable[[Tensor], Tensor], Tensor, int]:
        """Returns (function of frames, the frames, index of its first sample)."""
        hop, behind = self._hop, self._reach.behind
        span = behind + CHUNK_FRAMES + self._reach.ahead

        def work(frames: Tensor) -> Tensor:
            wave: Tensor = self._network(frames)
            return wave[:, hop * behind : hop * (behind + CHUNK_FRAMES)]

        # Starts at a frame with full context, because the ends of the mel are a special case.
        frames = self._mel[..., CHUNK_FRAMES : CHUNK_FRAMES + span]
        return work, frames, hop * (CHUNK_FRAMES + behind)

    def stream_row(self, streams: int, repeats: int) -> Row:
        """Times pushes into streams whose layers are full, like during playback."""
        stream, heard = self._network.stream(), []
        mel = self._mel.expand(streams, -1, -1)
        needed = self._wanted.shape[1] // self._hop + self._reach.ahead
        for begin in range(0, needed, CHUNK_FRAMES):
            chunk = mel[..., begin : begin + CHUNK_FRAMES]
            heard.append(stream.push(chunk))
        ours = torch.cat(heard, 1)[:, : self._wanted.shape[1]]
        wanted = self._wanted.expand(streams, -1)
        row = self._row(f"{CHUNK_FRAMES} frames, stream push", streams, "graph", ours, wanted)
        row = replace(row, sound_ms=self._sound_ms(CHUNK_FRAMES))
        row = replace(row, goal_ms=GOAL_CHUNK_MS if streams == 1 else None)
        return timed(row, partial(stream.push, chunk), self._place, repeats)

    def long_rows(self, name: str, repeats: int, graph: bool = True) -> Iterator[Row]:
        frames = self._mel.shape[-1]
        goal = self._sound_ms(frames) / GOAL_REAL_TIME if graph else None
        what = f"{_LONG_SECONDS} s, {name}"
        work, mel = self._network, self._mel
        yield from self._rows(what, work, mel, self._wanted, frames, goal, repeats, graph)

    def _rows(
        self,
        what: str,
        work: Callable[[Tensor], Tensor],
        given: Tensor,
        wanted: Tensor,
        frames: int,
        goal_ms: float | None,
        repeats: int,
        graph: bool,
    ) -> Iterator[Row]:
        forms: dict[Form, Callable[[Tensor], Tensor]] = {"eager": work}
        if graph:
            forms["graph"] = Graphed(work, given)
        for form, function in forms.items():
            ours = function(given)[:, : wanted.shape[1]]
            row = self._row(what, 1, form, ours, wanted)
            row = replace(row, sound_ms=self._sound_ms(frames), goal_ms=goal_ms)
            yield timed(row, partial(function, given), self._place, repeats)

    def _row(self, what: str, streams: int, form: Form, ours: Tensor, wanted: Tensor) -> Row:
        close = compare(f"BigVGAN, {what}, {self._precision}, {form}", ours, wanted)
        error, cosine = close.error, close.cosine
        return Row("BigVGAN", what, streams, self._precision, form, error, cosine, sound_ms=0.0)

    def _sound_ms(self, frames: int) -> float:
        return 1e3 * frames * self._hop / self._network.sample_rate
