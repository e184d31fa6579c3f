"""Compiles the flow's GPU kernels before they are measured, each form in a process of its own.

Compiling one form takes Triton some twenty seconds of one core; the results lie in its cache on
disk, where the measuring process finds them. Measures nothing. A process that fails costs only
time: whatever is not compiled yet is compiled when it is first used.
"""

import os
import subprocess
import sys

import torch

from mosslive.bench.codec_check import HALVES
from mosslive.checkpoint.synth import SIZES, SizeName
from mosslive.codec.flow_stream import FlowStream, StreamSettings
from mosslive.codec.synth import CODEC_SIZES, _flow
from mosslive.kernels.arithmetic import Precision, arithmetic

_MOST_SECONDS = 60.0


class Compiling:
    """Starts at once; `wait` for it before times are taken."""

    def __init__(self, size: SizeName, forms: list[tuple[Precision, int]]) -> None:
        program = (sys.executable, "-m", __name__, size)
        quiet, one_core = subprocess.DEVNULL, os.environ | {"OMP_NUM_THREADS": "1"}
        self._processes = [
            subprocess.Popen(
                [*program, precision, str(streams)], stdout=quiet, stderr=quiet, env=one_core
            )
            for precision, streams in forms
        ]

    def wait(self) -> None:
        for process in self._processes:
            try:
                process.wait(_MOST_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def compile_form(size: SizeName, precision: Precision, streams: int) -> None:
    """Runs one step of so many streams, of weights that are whatever lies in memory."""
    flow = _flow(CODEC_SIZES[size], SIZES[size].codes).to_empty(device="cuda")
    settings = StreamSettings(5, None, 4.0, HALVES.get(precision, torch.float32))
    with torch.no_grad(), arithmetic("fp32"):
        FlowStream(flow, settings).compile(streams)


if __name__ == "__main__":
    compile_form(sys.argv[1], sys.argv[2], int(sys.argv[3]))  # type: ignore[arg-type]
