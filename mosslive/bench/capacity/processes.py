"""The processes of a capacity benchmark: callers over sockets, and a server of its own.

Runs on the event loop of the benchmark. A process that ends early fails the benchmark with what it
wrote to standard error.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from mosslive.bench.capacity.caller_process import Job
from mosslive.bench.capacity.outcome import Outcome
from mosslive.errors import MossliveError

CALLERS_EACH = 32  # in one process
_HEAD_START_S = 0.5  # to hand out the jobs
_START_S = 1800.0  # in which a server must be ready
_STOP_S = 40.0
_LINE_BYTES = 1 << 28  # the result of a level is one line


class ProcessEnded(MossliveError):
    """A process of the benchmark ended early."""


class CallerProcesses:
    """Processes that stay for all levels."""

    def __init__(self, processes: list[asyncio.subprocess.Process], log: Path) -> None:
        self._processes, self._log = processes, log

    async def run(self, job: Job) -> Outcome:
        """Deals the callers of a job out to the processes and returns what they heard."""
        count = max(1, min(len(self._processes), -(-len(job.callers) // CALLERS_EACH)))
        hands = [job.callers[number::count] for number in range(count)]
        used = self._processes[:count]
        for process, callers in zip(used, hands, strict=True):
            part = replace(job, callers=callers, starts_in_s=_HEAD_START_S)
            assert process.stdin is not None
            process.stdin.write((part.text() + "\n").encode())
            await process.stdin.drain()
        whole = Outcome()
        for line in await asyncio.gather(*(self._line(process) for process in used)):
            whole.add(Outcome.from_document(json.loads(line)))
        return whole

    async def ready(self) -> None:
        await asyncio.gather(*(self._line(process) for process in self._processes))

    async def _line(self, process: asyncio.subprocess.Process) -> bytes:
        assert process.stdout is not None
        if line := await process.stdout.readline():
            return line
        raise ProcessEnded(f"a process of callers ended: {_last_lines(self._log)}")


@asynccontextmanager
async def caller_processes(callers: int, questions: Path) -> AsyncIterator[CallerProcesses]:
    """Enough processes for so many callers at once; none for none."""
    with tempfile.TemporaryDirectory() as scratch:
        log, started = Path(scratch) / "log", list[asyncio.subprocess.Process]()
        try:
            with log.open("wb") as errors:
                for _ in range(-(-callers // CALLERS_EACH)):
                    started.append(
                        await asyncio.create_subprocess_exec(
                            *(sys.executable, "-m", "mosslive.bench.capacity.caller_process"),
                            str(questions),
                            stdin=asyncio.subprocess.PIPE,
                            stdout=asyncio.subprocess.PIPE,
                            stderr=errors,
                            limit=_LINE_BYTES,
                            env=os.environ | {"OMP_NUM_THREADS": "1"},
                        )
                    )
            made = CallerProcesses(started, log)
            await made.ready()
            yield made
        finally:
            for process in started:
                if process.returncode is None:
                    process.kill()
                await process.wait()


@asynccontextmanager
async def server_process(options: list[str]) -> AsyncIterator[str]:
    """Starts `mosslive serve` at a free port and yields its Realtime address when it is ready."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "mosslive", "serve", "--port", "0", *options),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=errors,
            )
        try:
            yield await _ready_at(process, log)
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    async with asyncio.timeout(_STOP_S):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()


async def _ready_at(process: asyncio.subprocess.Process, log: Path) -> str:
    async with asyncio.timeout(_START_S):
        while process.returncode is None:
            lines = [json.loads(line) for line in _json_lines(log)]
            said = {line.get("message"): line for line in lines}
            if "ready" in said:
                return f"ws://127.0.0.1:{said['listening']['port']}/v1/realtime"
            await asyncio.sleep(0.1)
    raise ProcessEnded(f"mosslive serve ended before it was ready: {_last_lines(log)}")


def _json_lines(log: Path) -> list[str]:
    """The complete log records so far."""
    whole, _, _ = log.read_text(errors="replace").rpartition("\n")
    return [line for line in whole.splitlines() if line.startswith("{")]


def _last_lines(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-3:]) or "no message"
