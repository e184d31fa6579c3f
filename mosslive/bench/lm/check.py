"""Verifies a decoder's logits against transformers' layers in float32, on equal rows.

The limits do not come from measurements of our decoder: float32 may differ by the order of sums,
bf16 by at most what transformers' own bf16 differs (times a factor), float8 by what rounding each
factor of the trunk's products leaves. Knows no times.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mosslive.bench.lm.bound_reference import Wiring, reference_logits
from mosslive.bench.lm.prefix_batch import PrefixBatch, speech_rows
from mosslive.bench.lm.streams import Conversation
from mosslive.bench.lm.weights import LmPrecision
from mosslive.bench.verified import NotVerified
from mosslive.config import ModelConfig
from mosslive.engine.stepper import StepResult
from mosslive.kernels.arithmetic import arithmetic
from mosslive.model import Decoder
from mosslive.rows import CHANNELS, Channel, Row

SEQUENCE_ROWS = 64

FP32_ERROR = 1e-4
# A sum of many independent roundings: equal within a few per cent in any correct implementation.
BF16_RMS_FACTOR = 1.5
# The largest of up to millions of differences is a single sample, so it varies more.
BF16_ERROR_FACTOR = 3.0
FP8_COSINE = 0.99
# Ids whose logits are this close, as a share of the largest, count as ties.
_TIES: dict[LmPrecision, float] = {"fp32": 1e-4, "bf16": 0.05, "fp8": 0.15}


@dataclass(frozen=True)
class Closeness:
    error: float  # largest |difference|, as a share of the largest |reference logit|
    rms: float  # ‖difference‖ / ‖reference‖
    cosine: float  # of the worst row
    argmax: float  # share of rows whose largest logit is the same id


@dataclass(frozen=True)
class Check:
    what: str
    precision: LmPrecision
    channel: Channel
    rows: int
    closeness: Closeness
    yardstick: Closeness  # transformers' own bf16 against the same float32


@dataclass(frozen=True)
class Expected:
    logits: dict[Channel, Tensor]  # float32
    yardstick: dict[Channel, Closeness]


class LogitReference:
    """Computes expected logits. `wiring`: the reference over the widest available weights."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    def expect(self, batch: PrefixBatch, wanted: Tensor) -> Expected:
        with arithmetic("fp32"):
            wide = reference_logits(self._wiring, batch, wanted, torch.float32)
        narrow = reference_logits(self._wiring, batch, wanted, torch.bfloat16)
        return Expected(
            wide, {c: compare(f"transformers bf16, {c}", narrow[c], wide[c]) for c in CHANNELS}
        )


def compare(name: str, ours: Tensor, wanted: Tensor) -> Closeness:
    """Compares [n, V] logits. Raises `NotVerified` for a wrong shape or values that are constant or
    not finite."""
    if ours.shape != wanted.shape:
        raise NotVerified(f"{name}: shape {list(ours.shape)} instead of {list(wanted.shape)}")
    ours = ours.float()
    if not torch.isfinite(ours).all() or float(ours.std(dim=1).min()) == 0:
        raise NotVerified(f"{name}: the output is constant or not finite")
    difference = ours - wanted
    return Closeness(
        error=float(difference.abs().max() / wanted.abs().max()),
        rms=float(difference.norm() / wanted.norm()),
        cosine=float(torch.cosine_similarity(ours, wanted, dim=1).min()),
        argmax=float((ours.argmax(1) == wanted.argmax(1)).float().mean()),
    )


def verify_logits(
    what: str, precision: LmPrecision, logits: dict[Channel, Tensor], expected: Expected
) -> list[Check]:
    """Returns one check per given tail. Raises `NotVerified` at the first that fails."""
    checks = []
    for channel, ours in logits.items():
        name = f"{what}, {precision}, {channel} head"
        close = compare(name, ours, expected.logits[channel])
        yardstick = expected.yardstick[channel]
        if excess := _excess(precision, close, yardstick):
            raise NotVerified(f"{name}: differs from transformers in float32: {excess}")
        checks.append(Check(what, precision, channel, len(ours), close, yardstick))
    return checks


def _excess(precision: LmPrecision, close: Closeness, yardstick: Closeness) -> str:
    if precision == "fp32":
        bad = close.error > FP32_ERROR
        return f"error {close.error:.1e}, allowed {FP32_ERROR:.0e} of the scale" if bad else ""
    if precision == "fp8":
        bad = close.cosine < FP8_COSINE
        return f"cosine {close.cosine:.4f}, allowed at least {FP8_COSINE}" if bad else ""
    rms, error = BF16_RMS_FACTOR * yardstick.rms, BF16_ERROR_FACTOR * yardstick.error
    if close.rms > rms:
        return f"rms {close.rms:.1e}, allowed {rms:.1e}"
    return f"error {close.error:.1e}, allowed {error:.1e}" if close.error > error else ""


@dataclass(frozen=True)
class Sequence:
    """Rows that follow `context` others one by one, and the expected logits of each."""

    rows: list[Row]
    context: int
    expected: Expected


def make_sequence(config: ModelConfig, reference: LogitReference, context: int) -> Sequence:
    rows = speech_rows(config, context + SEQUENCE_ROWS, 0)
    expected = reference.expect(PrefixBatch([rows], [], []), torch.arange(context, len(rows)))
    return Sequence(rows, context, expected)


def check_sequence(decoder: Decoder, precision: LmPrecision, given: Sequence) -> list[Check]:
    """Runs `context` rows in one pass, then rows one by one through pages, as in a conversation.
    Verifies both heads."""
    rows, context = given.rows, given.context
    conversation = Conversation.eager(decoder, len(rows))
    with arithmetic("fp32" if precision == "fp32" else "bf16"):
        conversation.give(rows[:context], CHANNELS)
        found = [conversation.give([row], CHANNELS) for row in rows[context:]]
    logits = {channel: torch.cat([one[channel] for one in found]) for channel in CHANNELS}
    what = f"{SEQUENCE_ROWS} single rows after {context}"
    return verify_logits(what, precision, logits, given.expected)


def check_codes(logits: Tensor, made: list[StepResult]) -> None:
    """Raises `NotVerified` unless the greedy rows of a recorded step have the largest of `logits`,
    [B, codes], which the eager step computed."""
    codes = [row[1] for row in made if isinstance(row, tuple)]
    if len(codes) < len(made) or min(codes) < 0 or max(codes) >= logits.shape[1]:
        raise NotVerified(f"the recorded step made no codes: {made[:4]}")
    _check_best(logits, codes, _TIES["bf16"])


def _check_best(logits: Tensor, codes: list[int], tie: float) -> None:
    """Raises `NotVerified` unless the logit of each code is within `tie` of the largest of its
    row."""
    largest = logits.amax(dim=1)
    chosen = logits.gather(1, torch.tensor(codes, device=logits.device)[:, None])[:, 0]
    if not (chosen >= largest - tie * largest.abs()).all():
        raise NotVerified("the chosen codes do not have the largest logits")


def check_reply(
    wiring: Wiring, precision: LmPrecision, prompt: list[Row], reply: list[Row]
) -> None:
    """Raises `NotVerified` unless each code of a greedy reply has the largest logit of
    transformers' layers after the same rows, up to ties."""
    rows = [*prompt, *reply]
    wanted = torch.arange(len(prompt) - 1, len(rows) - 1)
    with arithmetic("fp32"):
        logits = reference_logits(wiring, PrefixBatch([rows], [], []), wanted, torch.float32)[
            "audio"
        ]
    _check_best(logits[:, : wiring.config.codes], [row[1] for row in reply], _TIES[precision])
    if len(set(reply)) < 2:
        raise NotVerified(f"a greedy reply of {len(reply)} rows is constant")
