"""Measures how many live conversations one device holds: levels of load, and the largest that fits.

Each level runs its callers for a while, over sockets from other processes, in this process against
`Talk`, or half and half. Runs on one event loop, that of a server in this process too. Knows the
order of things; the load, the callers and the figures have files of their own.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from mosslive.bench.capacity import questions as stored
from mosslive.bench.capacity.caller import Caller
from mosslive.bench.capacity.caller_process import Job, run_callers
from mosslive.bench.capacity.capacity_report import Capacity
from mosslive.bench.capacity.level import LevelFigures, level_figures
from mosslive.bench.capacity.line import CallRefused
from mosslive.bench.capacity.load import first_calls, ramp_s
from mosslive.bench.capacity.metrics_page import Counters, read_counters
from mosslive.bench.capacity.outcome import Outcome
from mosslive.bench.capacity.processes import CallerProcesses, caller_processes, server_process
from mosslive.bench.capacity.questions import Frames, Samples
from mosslive.bench.capacity.search import next_level
from mosslive.bench.capacity.settings import CapacitySettings
from mosslive.bench.capacity.socket_line import SocketLine
from mosslive.bench.capacity.talk_line import TalkLine, waves
from mosslive.bench.capacity.target import Target, local_folder, local_random
from mosslive.kernels.arithmetic import arithmetic
from mosslive.talk.cpu_threads import shared_cpu_threads

_REST_S = 2.0  # between levels, until the server has ended all sessions
Report = Callable[[str], None]


def measure_capacity(settings: CapacitySettings, seen: Report = lambda line: None) -> Capacity:
    """Calls `seen` with progress lines. Raises `CallFailed` if the server cannot be called."""
    began = time.monotonic()

    def report_progress(done: str) -> None:
        seen(f"{time.monotonic() - began:.0f} s: {done}")

    questions = stored.make_questions(settings.load, settings.recording)
    # Both apply to the whole process: the codec needs exact float32, the models share the cores.
    with arithmetic("fp32"), shared_cpu_threads("" if settings.url else settings.device):
        figures = asyncio.run(_measure(settings, questions, report_progress))
    return Capacity(settings, tuple(sorted(figures, key=lambda one: one.conversations)))


async def _measure(
    settings: CapacitySettings, questions: list[Samples], report_progress: Report
) -> list[LevelFigures]:
    figures: dict[int, LevelFigures] = {}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "questions.npz"
        stored.save(file, questions)
        callers = settings.socket_callers(settings.most_level)
        async with _target(settings, report_progress) as target:
            await _check_line(settings, target)
            async with caller_processes(callers, file) as processes:
                report_progress("the server and the callers are ready")
                levels = _Levels(settings, target, processes, questions)
                while (level := _next(settings, figures)) is not None:
                    if figures:
                        await asyncio.sleep(_REST_S)
                    figures[level] = await levels.run(level)
                    report_progress(progress_line(figures[level]))
    return list(figures.values())


def _next(settings: CapacitySettings, figures: dict[int, LevelFigures]) -> int | None:
    if settings.levels:
        return next((level for level in settings.levels if level not in figures), None)
    kept = {level: one.holds for level, one in figures.items()}
    return next_level(kept, settings.most)


@asynccontextmanager
async def _target(settings: CapacitySettings, report_progress: Report) -> AsyncIterator[Target]:
    sessions = settings.most_level
    if settings.url:
        yield Target(settings.url)
    elif settings.subject:
        longest_s = settings.load.reply_s[1]
        precisions = settings.precision, settings.codec_precision
        async with local_random(
            settings.subject, *precisions, sessions, longest_s, report_progress
        ) as target:
            yield target
    elif settings.model and settings.sockets < 1:
        async with local_folder(settings.model, settings.device, sessions) as target:
            yield target
    else:
        options = ["--model", str(settings.model), "--device", settings.device]
        options += ["--max-sessions", str(sessions), *settings.server_options]
        async with server_process(options) as url:
            yield Target(url)


async def _check_line(settings: CapacitySettings, target: Target) -> None:
    """Raises `CallFailed` if the server does not answer. A busy server is no error."""

    class Nobody:
        def begun(self, reply: str) -> None: ...
        def sound(self, reply: str, samples: int, *, good: bool = True) -> None: ...
        def ended(
            self, reply: str, status: str, *, codes: int | None = None, fault: str = ""
        ) -> None: ...
        def dropped(self, reason: str) -> None: ...

    line = SocketLine(target.url, Frames([], ""), settings.ends, settings.key)
    try:
        await line.open(Nobody())
    except CallRefused:
        return
    await line.close()


class _Levels:
    def __init__(
        self,
        settings: CapacitySettings,
        target: Target,
        processes: CallerProcesses,
        questions: list[Samples],
    ) -> None:
        self._settings, self._target, self._processes = settings, target, processes
        self._waves = waves(questions) if target.backend else []

    async def run(self, conversations: int) -> LevelFigures:
        settings, began = self._settings, time.monotonic()
        until_s = ramp_s(settings.seconds) + settings.seconds
        firsts = first_calls(conversations, ramp_s(settings.seconds), settings.load.seed)
        callers = list(enumerate(firsts))
        count = settings.socket_callers(conversations)
        before = await self._counters()
        sockets, local = await asyncio.gather(
            self._over_sockets(callers[:count], until_s), self._in_process(callers[count:], until_s)
        )
        after = await self._counters()
        return level_figures(
            conversations,
            sockets,
            local,
            ramp_s=ramp_s(settings.seconds),
            until_s=until_s,
            waited_s=settings.ends.waited_s,
            wall_s=time.monotonic() - began,
            counters=after.since(before),
            promise=settings.promise,
            socket_callers=count,
        )

    async def _over_sockets(self, callers: list[tuple[int, float]], until_s: float) -> Outcome:
        if not callers:
            return Outcome()
        settings = self._settings
        url, key = self._target.url, settings.key
        job = Job(url, key, settings.load, settings.ends, callers, 0.0, until_s)
        return await self._processes.run(job)

    async def _in_process(self, callers: list[tuple[int, float]], until_s: float) -> Outcome:
        if not callers:
            return Outcome()
        settings, target = self._settings, self._target
        lengths = [len(packets) for packets in self._waves]

        def make_line() -> TalkLine:
            chosen = target.talk_settings()
            return TalkLine(target.make_talk, chosen, self._waves, settings.ends)

        made = [
            Caller(number, settings.load, make_line, lengths, settings.ends)
            for number, _ in callers
        ]
        firsts = [first for _, first in callers]
        return await run_callers(made, firsts, time.monotonic(), until_s)

    async def _counters(self) -> Counters:
        return await asyncio.to_thread(read_counters, self._target.url, self._settings.key)


def progress_line(figures: LevelFigures) -> str:
    times = ", ".join(f"{name} {value:.0f}" for name, value in figures.ttfa_ms.items())
    verdict = "kept" if figures.kept else "broken"
    return (
        f"{figures.conversations} conversations, {figures.held_most} at once: "
        f"{figures.replies} replies, TTFA ms {times or 'unknown'}, {figures.gaps} gaps, "
        f"{figures.refused} refused, {figures.failed} failed; the promise is {verdict}"
    )
