"""Compiles the codec's GPU kernels in parallel processes before they are measured.

Triton needs a second or more of one core per kernel, and a network has dozens. The results are in
its cache on disk, where the measuring process finds them. Measures nothing. A process that fails
costs only time: a missing kernel is compiled at its first use. Invariant: when `compiling` ends,
none of its processes runs, so that none disturbs a measurement.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from mosslive.bench.codec.check import HALVES
from mosslive.bench.codec.kernel_share import take_share
from mosslive.checkpoint.synth import SIZES, SizeName
from mosslive.codec.bigvgan.step import BigVganState, advance
from mosslive.codec.convolution import compute_in
from mosslive.codec.encoder_batch import EncoderBatch
from mosslive.codec.flow_stream import FlowStream, StreamSettings
from mosslive.codec.graph_sets import MOST_OVERLAPPED
from mosslive.codec.mel import BLOCK_SAMPLES
from mosslive.codec.random_networks import (
    CODEC_SIZES,
    empty_bigvgan,
    empty_encoder,
    empty_flow,
    empty_hift,
)
from mosslive.kernels.arithmetic import Precision, arithmetic
from mosslive.kernels.wide_steps import wide_step

# Rows of the encoder's steps, by process. Its kernels depend on the number of rows; larger steps
# use those of 32 and the vendor's library.
_ENCODER_ROWS = ((1, 2, 3, 4), (6, 8, 12), (16, 24, 32))
_MOST_SECONDS = 60.0  # to wait for all processes together


class CompileJob(NamedTuple):
    """The kernels that one process compiles: those of a network for some numbers of streams, or a
    share of them."""

    network: str  # a key of _RUNS
    precision: Precision
    streams: tuple[int, ...]
    frames: tuple[int, ...] = ()  # of whole passes, by vocoders
    pushed: int = 0  # frames of a chunk of BigVGAN's streams
    share: int = 0
    shares: int = 1

    def split(self, shares: int) -> "list[CompileJob]":
        return [self._replace(share=share, shares=shares) for share in range(shares)]


def encoder_jobs(precision: Precision) -> list[CompileJob]:
    """Returns the jobs for steps of any number of turns."""
    return [CompileJob("encoder", precision, rows) for rows in _ENCODER_ROWS]


@contextmanager
def compiling(size: SizeName, device: str, jobs: Sequence[CompileJob]) -> Iterator[None]:
    """Compiles in the background of the `with` block, then waits up to `_MOST_SECONDS`."""
    quiet, one_core = subprocess.DEVNULL, os.environ | {"OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, size, repr(tuple(job))],
            stdout=quiet,
            stderr=quiet,
            env=one_core,
        )
        for job in (jobs if device == "cuda" else ())
    ]
    try:
        yield
        latest = time.monotonic() + _MOST_SECONDS
        while any(process.poll() is None for process in processes) and time.monotonic() < latest:
            time.sleep(0.05)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@torch.no_grad()
def run_job(size: SizeName, job: CompileJob, device: str = "cuda") -> None:
    """Runs a job in its own process, on uninitialised weights."""
    if job.shares > 1:
        take_share(job.share, job.shares)
    with arithmetic("fp32"):
        _RUNS[job.network](size, job, device)


def _encoder(size: SizeName, job: CompileJob, device: str) -> None:
    encoder = empty_encoder(CODEC_SIZES[size], SIZES[size].codes).to_empty(device=device)
    batch = EncoderBatch(encoder.to_precision(HALVES.get(job.precision, torch.float32)))
    for streams in job.streams:
        turns = [batch.add() for _ in range(streams)]
        for turn in turns:
            batch.push(turn, torch.zeros(BLOCK_SAMPLES))
        batch.start(turns).result()
        for turn in turns:
            batch.cancel(turn)


def _bigvgan(size: SizeName, job: CompileJob, device: str) -> None:
    network = empty_bigvgan(CODEC_SIZES[size]).to_empty(device=device)
    compute_in(network, HALVES.get(job.precision, torch.float32))
    bands = network.config.num_mels
    for frames in job.frames:
        network(torch.zeros(1, bands, frames, device=device))
    for streams in job.streams:
        mel = network.accept(torch.zeros(streams, bands, job.pushed, device=device))
        state, before = BigVganState(), None
        while before is None or _shapes(state) != _shapes(before):  # until its layers are full
            before = state
            _, state = advance(network, state, mel)


def _shapes(state: BigVganState) -> list[torch.Size]:
    return [part.shape for part in state.kept]


def _hift(size: SizeName, job: CompileJob, device: str) -> None:
    hift = empty_hift(CODEC_SIZES[size])
    hift.compute_in(HALVES.get(job.precision, torch.float32))
    hift = hift.to_empty(device=device)
    for streams in job.streams:
        for frames in job.frames:
            with wide_step(streams > MOST_OVERLAPPED):
                hift(torch.zeros(streams, hift.settings.mel_bins, frames, device=device))


def _flow(size: SizeName, job: CompileJob, device: str) -> None:
    flow = empty_flow(CODEC_SIZES[size], SIZES[size].codes).to_empty(device=device)
    settings = StreamSettings(5, None, 4.0, HALVES.get(job.precision, torch.float32))
    for streams in job.streams:
        FlowStream(flow, settings).compile(streams)


_RUNS: dict[str, Callable[[SizeName, CompileJob, str], None]] = {
    "encoder": _encoder,
    "bigvgan": _bigvgan,
    "hift": _hift,
    "flow": _flow,
}


if __name__ == "__main__":
    from ast import literal_eval

    run_job(sys.argv[1], CompileJob(*literal_eval(sys.argv[2])))  # type: ignore[arg-type]
