"""Measures the start of an engine in a fresh process: from its folder to the first row.

Each load verifies itself: every byte against its checksum, and a golden probe that transformers'
layers computed. Without a given folder, writes a random one to memory-backed storage.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mosslive.bench.lm.folder import write_random_engine
from mosslive.bench.report import BenchResult, BenchRow, conditions_of
from mosslive.bench.subject import Subject
from mosslive.bench.timing import free_memory, summary
from mosslive.bench.verified import NotVerified
from mosslive.config import refuse

_GOAL_MS = {"bf16": 20_000.0}
_MEMORY = Path("/dev/shm")

NOTES = {
    "verified": "each start checks every byte by checksum and a golden probe made by transformers' "
    "layers in float32, or fails",
    "times": "wall clock from the start of a fresh Python process to the first row of a reply",
    "ready": "weights loaded, as many pages as fit, all graphs recorded",
    "first start": "with an empty cache of compiled kernels, as after an installation; later "
    "starts use the cache",
}


@dataclass(frozen=True)
class LoadSettings:
    subject: Subject
    precision: str  # of the random folder
    repeats: int  # starts with a warm cache of compiled kernels
    cold: bool = True  # one start before them with an empty cache
    folder: Path | None = None  # where the random folder is written; default: /dev/shm

    def __post_init__(self) -> None:
        if self.precision not in ("bf16", "fp8"):
            raise refuse("precision", self.precision, "bf16 or fp8")

    @property
    def command(self) -> str:
        where = f" --folder {self.folder}" if self.folder else ""
        cold = "" if self.cold else " --no-cold"
        options = f"{self.subject.options} --precision {self.precision}{where}{cold}"
        return f"mosslive bench load {options}"


def measure_load(settings: LoadSettings) -> BenchResult:
    """Raises `NotVerified` if a start fails."""
    subject = settings.subject
    if subject.engine is not None:
        starts = _starts(subject.engine, settings)
        folder_bytes, kind = _size(subject.engine), _filesystem(subject.engine)
    else:
        parent = settings.folder or (_MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir()))
        with tempfile.TemporaryDirectory(dir=parent) as scratch:
            config, weights = subject.load(float8_trunk=settings.precision == "fp8")
            folder = write_random_engine(Path(scratch) / "engine", config, weights)
            del weights
            free_memory(subject.device)
            starts = _starts(folder, settings)
            folder_bytes, kind = _size(folder), _filesystem(folder)
    first, later = starts[: settings.cold], starts[settings.cold :]
    goal = _GOAL_MS.get(settings.precision) if subject.has_goals else None

    def row(what: str, times: list[float]) -> BenchRow:
        taken = summary(times)
        return BenchRow(
            what, "mosslive", settings.precision, 1, 1, taken, folder_bytes, goal_ms=goal
        )

    parts = dict(later[-1][1])
    held = int(parts.pop("rows the pages hold"))
    return BenchResult(
        title="load an engine folder, to the first row",
        conditions=conditions_of(
            settings.command, subject.device, subject.shown_size, subject.shown_weights, NOTES
        ),
        ceilings=None,
        rows=(
            *(row("first start", [total]) for total, _ in first),
            row("start", [total for total, _ in later]),
        ),
        figures={
            "folder, GB": folder_bytes / 1e9,
            "storage": kind,
            **{f"last start: {name}, s": seconds for name, seconds in parts.items()},
            "rows the pages hold": held,
        },
    )


def _starts(folder: Path, settings: LoadSettings) -> list[tuple[float, dict[str, float]]]:
    """Returns (milliseconds in total, seconds by part) of each start, in order."""
    command = [sys.executable, "-m", "mosslive.bench.lm.load_once", str(folder)]
    found = []
    with tempfile.TemporaryDirectory() as kernels:
        environment = os.environ | ({"TRITON_CACHE_DIR": kernels} if settings.cold else {})
        for _ in range(settings.cold + settings.repeats):
            begun = time.perf_counter()
            done = subprocess.run(
                [*command, settings.subject.device],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            taken = 1e3 * (time.perf_counter() - begun)
            if done.returncode:
                raise NotVerified(f"a start of {folder} failed: {done.stderr.strip()[-400:]}")
            found.append((taken, json.loads(done.stdout.splitlines()[-1])))
    return found


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _filesystem(folder: Path) -> str:
    """Returns the filesystem type of the folder."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    mounts = [line.split()[1:3] for line in lines]
    target = os.path.realpath(folder)
    holding = [m for m in mounts if os.path.commonpath((m[0], target)) == m[0]]
    return max(holding, key=lambda mount: len(mount[0]))[1]
