"""Verifies the decode step against transformers in float32, then times it with its baselines.

One step is what the engine runs per 80 ms of speech: one row of every stream through the trunk and
the audio tail, the audio head, and the sampling of its code. Reports the time on the device and the
whole call of the stepper including the host. Excludes scheduling, which `engine` measures.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mosslive.bench.ceilings import Ceilings, measure_ceilings
from mosslive.bench.lm.baseline import step_baselines
from mosslive.bench.lm.bound_reference import Wiring
from mosslive.bench.lm.bytes import cache_bytes, weight_bytes
from mosslive.bench.lm.check import (
    SEQUENCE_ROWS,
    Check,
    Expected,
    LogitReference,
    check_codes,
    check_sequence,
    make_sequence,
    verify_logits,
)
from mosslive.bench.lm.lazy import check_lazy
from mosslive.bench.lm.prefix_batch import PrefixBatch, make_prefix_batch
from mosslive.bench.lm.streams import Streams, check_steady, device_part
from mosslive.bench.lm.weights import LmPrecision, as_precision, precision_of
from mosslive.bench.report import BenchResult, BenchRow, conditions_of
from mosslive.bench.subject import Subject, check_context, checked_precisions
from mosslive.bench.timing import Times, free_memory, summary, times_ms
from mosslive.bench.verified import NotVerified
from mosslive.config import ModelConfig, Sampling
from mosslive.engine.graph_stepper import GraphStepper
from mosslive.engine.stepper import Stepper
from mosslive.kernels.arithmetic import arithmetic
from mosslive.model import Decoder, DecoderWeights
from mosslive.rows import Channel

# By streams and precision, at 1024 rows of context.
_GOALS_MS: dict[tuple[int, str], float] = {
    (1, "bf16"): 3.8,
    (1, "fp8"): 2.3,
    (64, "bf16"): 8.0,
    (256, "bf16"): 17.0,
}
_GOAL_CONTEXT = 1024
_SPEAKING: tuple[Channel, ...] = ("audio",)
_GREEDY = Sampling(greedy=True, min_new=10**6, max_new=10**6)
_DRIVER = Sampling.driver(min_new=10**6, max_new=10**6)  # never stops

NOTES = {
    "verified": "every timed step's logits, all streams, and 64 rows one by one, against "
    "transformers' layers in float32 on the same weights; bf16 may differ 1.5 times as much (rms) "
    "as transformers' own bf16 does, fp8 by a cosine of 0.99, fp32 by 1e-4 of the logit scale",
    "decode step": "device events around the recorded step, device idle before each: from inputs "
    "on the device to ids on the device, with the sampling of the published driver; the baselines "
    "do not sample",
    "with host": "wall clock of the stepper's whole call: page tables, copies in and out, requests",
    "read": "weights, scales, keys and values of one step, each once; floor: that at the measured "
    "read bandwidth",
    "context": "rows a stream's new row sees, at least; streams differ by up to 6 rows",
}


@dataclass(frozen=True)
class DecodeSettings:
    subject: Subject
    streams: tuple[int, ...]
    contexts: tuple[int, ...]
    precisions: tuple[str, ...]
    repeats: int
    reference: bool = True  # time the baselines
    compiled: bool = True  # also time the compiled one; compiling takes about 15 s

    @property
    def command(self) -> str:
        lists = [",".join(map(str, some)) for some in (self.streams, self.contexts)]
        command = f"mosslive bench decode {self.subject.options} --streams {lists[0]} "
        command += f"--context {lists[1]} --precision {','.join(self.precisions)}"
        command += "" if self.reference else " --no-reference"
        return command + ("" if self.compiled or not self.reference else " --no-compiled")


def measure_decode(settings: DecodeSettings) -> BenchResult:
    """Reports an output that differs from the reference under `refused`, without a time."""
    subject = settings.subject
    ceilings = measure_ceilings(subject.device)
    config, base = subject.load()
    check_context(config, max(settings.contexts) + max(SEQUENCE_ROWS, settings.repeats + 8))
    precisions = checked_precisions(base, settings.precisions)
    run = _Run(settings, ceilings, config, base)
    rows: list[BenchRow] = []
    checks: list[Check] = []
    for made, verified in run.all(precisions):
        rows += made
        checks += verified
    return BenchResult(
        title="decode step, speaking",
        conditions=conditions_of(
            settings.command, subject.device, subject.shown_size, subject.shown_weights, NOTES
        ),
        ceilings=ceilings,
        rows=tuple(rows),
        checks=tuple(checks),
        figures=run.figures,
        refused=tuple(run.refused),
    )


Found = tuple[list[BenchRow], list[Check]]


class _Run:
    def __init__(
        self,
        settings: DecodeSettings,
        ceilings: Ceilings,
        config: ModelConfig,
        base: DecoderWeights,
    ) -> None:
        self._settings, self._ceilings = settings, ceilings
        self._config, self._base = config, base
        self._wiring = Wiring(config, base)
        self._reference = LogitReference(self._wiring)
        self.figures: dict[str, Any] = {}
        self.refused: list[str] = []

    def all(self, precisions: list[LmPrecision]) -> Iterator[Found]:
        settings = self._settings
        cases = [(s, c) for c in settings.contexts for s in settings.streams]
        batches = {case: make_prefix_batch(self._config, *case) for case in cases}
        expected = {
            case: self._reference.expect(batch, batch.last_indices)
            for case, batch in batches.items()
        }
        sequence = make_sequence(self._config, self._reference, settings.contexts[0])
        wide = precision_of(self._base) != "fp8"
        # float32 is always verified: it shows errors that bf16 could hide.
        for precision in dict.fromkeys((*(("fp32",) if wide else ()), *precisions)):
            weights = as_precision(self._base, precision)
            decoder = Decoder(self._config, weights)
            try:
                yield [], check_sequence(decoder, precision, sequence)
                if precision == "fp32":
                    self.figures |= check_lazy(self._config, weights)
            except NotVerified as reason:
                self.refused.append(f"everything in {precision}: {reason}")
                continue
            for case, batch in batches.items() if precision in precisions else ():
                try:
                    yield self._timed(decoder, precision, batch, expected[case])
                except NotVerified as reason:
                    self.refused.append(f"{case[0]} streams, {precision}: {reason}")
                free_memory(settings.subject.device)
            del decoder, weights
            free_memory(settings.subject.device)
        for context in settings.contexts if settings.reference and wide else ():
            yield from self._baselines(context, expected.get((1, context)))

    def _timed(
        self, decoder: Decoder, precision: LmPrecision, batch: PrefixBatch, expected: Expected
    ) -> Found:
        settings, count = self._settings, len(batch.last_rows)
        context = min(batch.lengths) + 1
        streams = Streams(decoder, batch, capacity=settings.repeats + 8)
        with arithmetic("fp32" if precision == "fp32" else "bf16"):
            streams.fill()
            logits = streams.logits(_SPEAKING)
            what = f"decode step, {count} streams, {context} rows"
            checks = verify_logits(what, precision, logits, expected)
            stepper = streams.stepper
            check_codes(
                logits["audio"][:, : self._config.codes], stepper.decode(streams.requests(_GREEDY))
            )
            if isinstance(stepper, GraphStepper):
                check_steady(stepper, count)
            streams.reset()
            times = {"decode step with host": self._whole_steps(stepper, streams)}
            if isinstance(stepper, GraphStepper):
                times["decode step"] = device_part(stepper, count, settings.repeats)
        read = weight_bytes(decoder.weights, _SPEAKING)
        seen = [length + 1 for length in batch.lengths]
        width = self._config.num_key_value_heads * self._config.head_dim
        read += cache_bytes(decoder.weights, _SPEAKING, seen, width)
        goal = None
        if settings.subject.has_goals and context == _GOAL_CONTEXT:
            goal = _GOALS_MS.get((count, precision))
        rows = [
            BenchRow(
                what=name,
                form="mosslive",
                precision=precision,
                streams=count,
                context=context,
                times=taken,
                bytes_read=read,
                floor_ms=read / self._ceilings.read_bytes_per_s * 1e3,
                floor_by="bytes",
                goal_ms=goal if name == "decode step" else None,
            )
            for name, taken in times.items()
        ]
        return rows, checks

    def _whole_steps(self, stepper: Stepper, streams: Streams) -> Times:
        """Times consecutive steps; the context grows by one row with each."""
        requests = streams.requests(_DRIVER)
        times = times_ms(lambda: stepper.decode(requests), "cpu", self._settings.repeats)
        if min(len(request.new_rows) for request in requests) < len(times):
            raise NotVerified("a timed step returned no row for some stream")
        return summary(times)

    def _baselines(self, context: int, expected: Expected | None) -> Iterator[Found]:
        settings = self._settings
        batch = make_prefix_batch(self._config, 1, context)
        expected = expected or self._reference.expect(batch, batch.last_indices)
        found = step_baselines(
            self._wiring, batch, expected, settings.compiled, min(settings.repeats, 20)
        )
        try:
            for row, checks in found:
                yield [row], checks
        except NotVerified as reason:
            self.refused.append(str(reason))
