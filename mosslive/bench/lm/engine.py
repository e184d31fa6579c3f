"""Measures the served engine: conversations that all speak at once, through the real scheduler.

Reports rows per second, the time from step to step including all host work, and rows that came too
late for playback. First verifies some greedy replies against transformers' layers in float32. Knows
no audio.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import torch

from mosslive.bench.lm.bound_reference import Wiring
from mosslive.bench.lm.check import check_reply
from mosslive.bench.lm.engine_watch import TimedStepper, full_steps
from mosslive.bench.lm.prefix_batch import speech_rows
from mosslive.bench.lm.streams import device_part
from mosslive.bench.lm.weights import LmPrecision, as_precision
from mosslive.bench.report import BenchResult, BenchRow, conditions_of
from mosslive.bench.subject import Subject, check_context, checked_precisions, random_tokenizer
from mosslive.bench.timing import Times, free_memory, summary
from mosslive.bench.verified import NotVerified
from mosslive.cache import PagePool
from mosslive.config import ModelConfig, Sampling, refuse
from mosslive.engine.conversation import Conversation
from mosslive.engine.engine import Engine
from mosslive.engine.graph_runner import GraphRunner
from mosslive.engine.graph_stepper import GraphStepper
from mosslive.engine.settings import EngineSettings
from mosslive.engine.stepper import PlainStepper
from mosslive.kernels.arithmetic import arithmetic
from mosslive.model import Decoder, DecoderWeights
from mosslive.rows import Row

_PAGE_SIZE = 16
_CHUNK_ROWS = 512
_GREEDY_ROWS = 8
_VERIFIED = 3  # conversations whose greedy rows are verified
_REPEATS = 20  # of the device's part
_GIB = 2**30

NOTES = {
    "verified": f"the first {_GREEDY_ROWS} greedy rows of all conversations are made in one batch; "
    f"those of {_VERIFIED} are verified: each code is the best by transformers' layers in "
    "float32, up to ties within the precision",
    "engine step": "wall clock from one step that serves every stream to the next: schedule, page "
    "tables, copies, device, rows delivered to their readers in one event loop",
    "stepper": "the part within the stepper's call; device: the recorded step alone",
    "missed deadlines": "rows made after the client had played everything, at 80 ms a row",
}


@dataclass(frozen=True)
class EngineBenchSettings:
    subject: Subject
    streams: tuple[int, ...]
    context: int
    rows: int  # of each reply
    precision: str
    memory_cap_gib: float | None = None  # for PyTorch's allocator; cuda only

    def __post_init__(self) -> None:
        if self.memory_cap_gib is not None and self.subject.device != "cuda":
            raise refuse("memory-cap-gib", self.memory_cap_gib, "with device cuda only")

    @property
    def command(self) -> str:
        command = f"mosslive bench engine {self.subject.options} "
        command += f"--streams {','.join(map(str, self.streams))} --context {self.context} "
        command += f"--rows {self.rows} --precision {self.precision}"
        cap = self.memory_cap_gib
        return command + (f" --memory-cap-gib {cap:g}" if cap is not None else "")


def measure_engine(settings: EngineBenchSettings) -> BenchResult:
    """Reports stream counts with a reply that differs from the reference under `refused`."""
    subject = settings.subject
    if subject.device == "cuda":
        free_memory("cuda")
        torch.cuda.reset_peak_memory_stats()
    if settings.memory_cap_gib is not None:
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(settings.memory_cap_gib * _GIB / whole)
    config, weights = subject.load(float8_trunk=settings.precision == "fp8")
    check_context(config, settings.context + settings.rows)
    (precision,) = checked_precisions(weights, (settings.precision,))
    weights = as_precision(weights, precision)
    rows: list[BenchRow] = []
    figures: dict[str, Any] = {}
    refused: list[str] = []
    with arithmetic("fp32" if precision == "fp32" else "bf16"):
        for streams in settings.streams:
            try:
                made, found = _Round(settings, config, weights, precision, streams).measure()
                rows += made
                figures |= found
            except NotVerified as reason:
                refused.append(f"{streams} streams: {reason}")
            free_memory(subject.device)
    if subject.device == "cuda":
        free, whole = torch.cuda.mem_get_info()
        figures["memory reserved by PyTorch at most, GiB"] = torch.cuda.max_memory_reserved() / _GIB
        figures["memory of the device in use, GiB"] = (whole - free) / _GIB
    return BenchResult(
        title="engine, all streams speaking",
        conditions=conditions_of(
            settings.command, subject.device, subject.shown_size, subject.shown_weights, NOTES
        ),
        ceilings=None,
        rows=tuple(rows),
        figures=figures,
        refused=tuple(refused),
    )


class _Round:
    """The measurement at one number of streams."""

    def __init__(
        self,
        settings: EngineBenchSettings,
        config: ModelConfig,
        weights: DecoderWeights,
        precision: LmPrecision,
        streams: int,
    ) -> None:
        self._settings, self._config, self._weights = settings, config, weights
        self._precision, self._streams = precision, streams

    def measure(self) -> tuple[list[BenchRow], dict[str, Any]]:
        settings, streams = self._settings, self._streams
        engine_settings = EngineSettings(max_conversations=max(streams, 1024))
        made = _GREEDY_ROWS + settings.rows + engine_settings.headroom_rows
        each = -(-(settings.context + made) // _PAGE_SIZE) + 1
        decoder = Decoder(self._config, self._weights)
        runner = GraphRunner(decoder, PagePool(each * streams, _PAGE_SIZE), _CHUNK_ROWS)
        stepper: PlainStepper | GraphStepper = PlainStepper(runner)
        if decoder.device.type == "cuda":
            stepper = GraphStepper(runner, streams)
            stepper.record()
        timed_stepper = TimedStepper(stepper)
        figures = asyncio.run(
            self._talk(Engine(timed_stepper, random_tokenizer(), engine_settings), timed_stepper)
        )
        spacing, within = full_steps(timed_stepper.steps, streams)
        rows = [
            self._row("engine step", summary(spacing)),
            self._row("of it, stepper", summary(within)),
        ]
        if isinstance(stepper, GraphStepper):
            rows.append(self._row("of it, device", device_part(stepper, streams, _REPEATS)))
            share = 1 - rows[-1].times.median_ms / rows[0].times.median_ms
            figures[f"{streams} streams, host's share of a step"] = share
        return rows, figures

    async def _talk(self, engine: Engine, timed_stepper: TimedStepper) -> dict[str, Any]:
        settings, streams = self._settings, self._streams
        name = f"{streams} streams"
        async with engine:
            begun = time.perf_counter()
            talks = [engine.open() for _ in range(streams)]
            prompts = [self._prompt(engine, number) for number in range(streams)]
            for talk, prompt in zip(talks, prompts, strict=True):
                talk.append(prompt)
            await asyncio.gather(*(talk.settled() for talk in talks))
            prefilled = time.perf_counter() - begun
            greedy = Sampling(greedy=True, max_new=_GREEDY_ROWS, min_new=10**6)
            replies = await asyncio.gather(*(_whole(talk, greedy) for talk in talks))
            self._verify(prompts, replies)
            for talk, prompt in zip(talks, prompts, strict=True):
                talk.truncate(len(prompt))
            await asyncio.gather(*(talk.settled() for talk in talks))
            timed_stepper.steps.clear()
            missed = engine.stats().missed_deadlines
            begun = time.perf_counter()
            samplings = [
                Sampling.driver(seed=number, max_new=settings.rows, min_new=10**6)
                for number in range(streams)
            ]
            await asyncio.gather(*map(_whole, talks, samplings))
            taken = time.perf_counter() - begun
            missed = engine.stats().missed_deadlines - missed
        return {
            f"{name}, rows made per second": streams * settings.rows / taken,
            f"{name}, times real time (12.5 rows a second each)": settings.rows / taken / 12.5,
            f"{name}, rows heard per second": streams * len(prompts[0]) / prefilled,
            f"{name}, missed deadlines": f"{missed} of {streams * settings.rows} rows",
        }

    def _prompt(self, engine: Engine, number: int) -> list[Row]:
        """Prompts differ from the first row on, so that no page is shared."""
        heard = speech_rows(self._config, self._settings.context - 1, 37 * number)
        return [*heard, (engine.ids.sosp, engine.ids.audio_pad)]

    def _verify(self, prompts: list[list[Row]], replies: list[list[Row]]) -> None:
        wiring = Wiring(self._config, self._weights)
        last = self._streams - 1
        for number in sorted({0, last // 2, last})[:_VERIFIED]:
            check_reply(wiring, self._precision, prompts[number], replies[number])

    def _row(self, what: str, times: Times) -> BenchRow:
        context = self._settings.context
        return BenchRow(what, "mosslive", self._precision, self._streams, context, times)


async def _whole(talk: Conversation, sampling: Sampling) -> list[Row]:
    return [row async for row in talk.reply(sampling)]
