"""Compiles the codec's GPU kernels in several processes, before the first warm-up on a machine.

Triton needs a second or more of one core for each kernel, and the warm-up needs hundreds. Each
process runs a share of the warm-up's pieces and ends; the kernels are then in Triton's cache on
disk, where the server finds them. A file in that cache notes that it is complete, so that later
starts skip this. A process that fails costs only time: a missing kernel is compiled at its first
use. Invariant: when `compile_ahead` returns, none of its processes runs.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from mosslive.config import SECONDS_PER_CODE
from mosslive.talk.cpu_threads import usable_cores

_MOST_PROCESSES = 12
_MOST_SECONDS = 120.0  # to wait for all processes together
_CODES_OF_A_REPLY = 15  # in the pool, of a reply of the warm-up: up to three chunks of 5
_REPLIES = 4  # in the pool: recordings need none, and others compile the sizes that fit
_HEARING_SECONDS = 30.0  # of the encoder's pool: a segment
_PROCESS_BYTES = 4 << 30  # context, weights and intermediate results of one process


@dataclass(frozen=True)
class CompileJob:
    """What the warm-up of a codec depends on; strings and numbers, to be handed over as JSON."""

    codec: str
    vocoder: str | None
    voice: str
    dtypes: dict[str, str]  # arguments of `load_codec`
    chunk: int
    replies: int
    tail: str
    device: str = "cuda"

    def pool_seconds(self, prompt_codes: int) -> float:
        """Of a pool that holds a few replies and the voice's prompt."""
        return SECONDS_PER_CODE * (prompt_codes + _CODES_OF_A_REPLY * _REPLIES)


def process_count(job: CompileJob, second_bytes: int, prompt_codes: int, free_bytes: int) -> int:
    """How many processes the cores and the GPU's memory allow; 0 if none."""
    each = _PROCESS_BYTES + int(job.pool_seconds(prompt_codes) * second_bytes)
    return max(0, min(_MOST_PROCESSES, usable_cores() - 1, free_bytes // each))


def note_of(job: CompileJob, device: str) -> Path:
    """The file that states that the cache has the kernels of this job on this kind of GPU."""
    gpu = torch.cuda.get_device_name(device) if torch.cuda.is_available() else device
    cache = os.environ.get("TRITON_CACHE_DIR") or str(Path.home() / ".triton" / "cache")
    versions = [version(name) for name in ("mosslive", "torch")]
    document = json.dumps([asdict(job), gpu, versions], sort_keys=True)
    return Path(cache) / f"mosslive-{hashlib.sha256(document.encode()).hexdigest()[:16]}"


def compile_ahead(job: CompileJob, processes: int, note: Path) -> bool:
    """Compiles unless the note is there. Returns whether it did; blocks until all have ended."""
    if processes < 2 or note.exists():
        return False
    commands = [[sys.executable, "-m", __name__, str(k), str(processes)] for k in range(processes)]
    ended = _run_all(commands, json.dumps(asdict(job)))
    if all(code == 0 for code in ended):
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()
    return True


def _run_all(commands: Sequence[Sequence[str]], given: str) -> list[int]:
    """Runs all commands at once with `given` on standard input. Returns their exit codes; those
    that take too long are killed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        for command in commands
    ]
    try:
        for process in running:
            assert process.stdin is not None
            process.stdin.write(given.encode())
            process.stdin.close()
        latest = time.monotonic() + _MOST_SECONDS
        while any(process.poll() is None for process in running) and time.monotonic() < latest:
            time.sleep(0.05)
    except BrokenPipeError:  # a process ended at once; the others are not worth waiting for
        pass
    finally:
        for process in running:
            process.kill()
            process.wait()
    return [process.returncode for process in running]


def run_share(job: CompileJob, share: int, shares: int) -> None:
    """Runs every `shares`-th piece of the warm-up, from the piece `share` on."""
    from mosslive.codec import load_codec
    from mosslive.codec.flow_stream import check_tail
    from mosslive.talk.warmup import hearing_pieces, speaking_pieces

    codec = load_codec(
        job.codec,
        job.device,
        vocoder=job.vocoder,
        hearing_seconds=_HEARING_SECONDS,
        **job.dtypes,  # type: ignore[arg-type]
    )
    voice = codec.voice(job.voice)
    codec.size_pool(job.pool_seconds(voice.codes))
    batch = codec.decoder_batch(job.chunk, tail=check_tail(job.tail))  # type: ignore[arg-type]
    # A vocoder without recordings of its own is recorded by rendering replies.
    speaking = batch.recordings(voice, job.replies) or speaking_pieces(
        batch, voice, job.chunk, job.replies, recorded=True
    )
    pieces = [*hearing_pieces(codec.encoder_batch, job.replies, recorded=True), *speaking]
    for piece in pieces[share::shares]:
        piece()


if __name__ == "__main__":
    run_share(CompileJob(**json.load(sys.stdin)), int(sys.argv[1]), int(sys.argv[2]))
