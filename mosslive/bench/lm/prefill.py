"""Verifies the prefill of a prompt against transformers in float32, then times it.

Covers what the engine does before a spoken reply: pages for the rows, trunk and audio tail on every
row, the head on the last one. Excludes scheduling.
"""

from dataclasses import dataclass

import torch

from mosslive.bench.ceilings import Ceilings, measure_ceilings
from mosslive.bench.lm.baseline import prefill_baseline
from mosslive.bench.lm.bound_reference import Wiring
from mosslive.bench.lm.bytes import pass_flops, weight_bytes
from mosslive.bench.lm.check import Check, Expected, LogitReference, verify_logits
from mosslive.bench.lm.prefix_batch import PrefixBatch, speech_rows
from mosslive.bench.lm.streams import Conversation
from mosslive.bench.lm.weights import LmPrecision, as_precision, precision_of
from mosslive.bench.report import BenchResult, BenchRow, conditions_of
from mosslive.bench.subject import Subject, checked_precisions
from mosslive.bench.timing import free_memory, summary, times_ms
from mosslive.bench.verified import NotVerified
from mosslive.kernels.arithmetic import arithmetic
from mosslive.model import Decoder
from mosslive.rows import CHANNELS, Channel

_GOALS_MS: dict[tuple[int, str], float] = {(512, "bf16"): 13.0, (512, "fp8"): 9.0}
_SPEAKING: tuple[Channel, ...] = ("audio",)

NOTES = {
    "verified": "logits after prompts of six lengths, both heads, against transformers' layers in "
    "float32 on the same weights, with the limits of the decode benchmark",
    "times": "device events around single passes, device idle before each; page tables and "
    "launches included",
    "floor": "multiplications of the weights and of attention at the measured rates, or bytes read "
    "if that takes longer",
}


@dataclass(frozen=True)
class PrefillSettings:
    subject: Subject
    rows: tuple[int, ...]
    precisions: tuple[str, ...]
    repeats: int
    reference: bool = True

    @property
    def command(self) -> str:
        command = f"mosslive bench prefill {self.subject.options} "
        command += f"--rows {','.join(map(str, self.rows))} --precision {','.join(self.precisions)}"
        return command + ("" if self.reference else " --no-reference")


def measure_prefill(settings: PrefillSettings) -> BenchResult:
    """Reports an output that differs from the reference under `refused`, without a time."""
    subject = settings.subject
    ceilings = measure_ceilings(subject.device)
    config, base = subject.load()
    precisions = checked_precisions(base, settings.precisions)
    wiring = Wiring(config, base)
    reference = LogitReference(wiring)
    rows: list[BenchRow] = []
    checks: list[Check] = []
    refused: list[str] = []
    for count in settings.rows:
        batch = PrefixBatch([speech_rows(config, count, 0)], [], [])
        wanted = torch.tensor(_lengths(count)) - 1
        expected = reference.expect(batch, wanted)
        for precision in precisions:
            decoder = Decoder(config, as_precision(base, precision))
            conversation = Conversation.recorded(decoder, count)
            try:
                checks += _check(conversation, precision, batch, expected)
                rows.append(_time(conversation, precision, batch, ceilings, settings))
            except NotVerified as reason:
                refused.append(str(reason))
            del decoder, conversation
            free_memory(subject.device)
        if settings.reference and precision_of(base) != "fp8":
            try:
                row, verified = prefill_baseline(wiring, batch, wanted, expected, settings.repeats)
                rows.append(row)
                checks += verified
            except NotVerified as reason:
                refused.append(str(reason))
    return BenchResult(
        title="prefill before a spoken reply",
        conditions=conditions_of(
            settings.command, subject.device, subject.shown_size, subject.shown_weights, NOTES
        ),
        ceilings=ceilings,
        rows=tuple(rows),
        checks=tuple(checks),
        refused=tuple(refused),
    )


def _check(
    conversation: Conversation, precision: LmPrecision, batch: PrefixBatch, expected: Expected
) -> list[Check]:
    """Verifies the last rows of prompts of several lengths, each from an empty cache."""
    rows = batch.prefixes[0]
    found = []
    with arithmetic("fp32" if precision == "fp32" else "bf16"):
        for length in _lengths(len(rows)):
            found.append(conversation.give(rows[:length], CHANNELS))
            conversation.reset()
    logits = {channel: torch.cat([one[channel] for one in found]) for channel in CHANNELS}
    return verify_logits(f"prefill of up to {len(rows)}", precision, logits, expected)


def _lengths(count: int) -> list[int]:
    return sorted({max(1, count * share // 8) for share in (1, 3, 5, 7)} | {count - 1 or 1, count})


def _time(
    conversation: Conversation,
    precision: LmPrecision,
    batch: PrefixBatch,
    ceilings: Ceilings,
    settings: PrefillSettings,
) -> BenchRow:
    subject, rows = settings.subject, batch.prefixes[0]
    count = len(rows)
    with arithmetic("fp32" if precision == "fp32" else "bf16"):
        times = summary(
            times_ms(
                lambda: conversation.give(rows, _SPEAKING),
                subject.device,
                settings.repeats,
                prepare=conversation.reset,
            )
        )
    decoder = conversation.runner.decoder
    config, weights = decoder.config, decoder.weights
    width = config.num_attention_heads * config.head_dim
    wide, narrow = pass_flops(weights, _SPEAKING, count, width)
    products_ms = 1e3 * (wide / ceilings.bf16_flops + narrow / (ceilings.fp8_flops or 1e30))
    read = weight_bytes(weights, _SPEAKING)
    bytes_ms = 1e3 * read / ceilings.read_bytes_per_s
    return BenchRow(
        what="prefill",
        form="mosslive",
        precision=precision,
        streams=1,
        context=count,
        times=times,
        bytes_read=read,
        floor_ms=max(products_ms, bytes_ms),
        floor_by="products" if products_ms >= bytes_ms else "bytes",
        goal_ms=_GOALS_MS.get((count, precision)) if subject.has_goals else None,
    )
