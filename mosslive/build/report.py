"""The FP8 report: compares a quantised trunk with the unquantised one on the same sequences.

It has four parts: the signal-to-noise ratio of each matrix; the cosine of both heads' logits; how
often the most likely id changes on the same rows; and how many replies never end when each model
continues with its own rows. Does not know files; the caller provides reply generation.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from mosslive.build.calibration import Sample
from mosslive.build.forward import run_sequences
from mosslive.build.fp8 import (
    Keep,
    Progress,
    batches,
    choose_fp8,
    quantise_trunk,
    replace_matrices,
    snr_db,
)
from mosslive.checkpoint.engine_layout import BaseDtype, Precision, matrix_names
from mosslive.model import Decoder
from mosslive.rows import CHANNELS, Channel, Row, RowIds, ends_reply

# (decoder, prompts) → the rows of each reply, limited by its sampling settings.
Replies = Callable[[Decoder, list[list[Row]]], list[list[Row]]]

_LOGIT_ROWS = 256  # rows of logits in memory at once: 155 MB per model at full size


@dataclass(frozen=True)
class HeadAgreement:
    """Over the rows whose next row belongs to this head's channel: only there its logits matter."""

    rows: int
    cosine_mean: float
    cosine_worst: float
    argmax_agreement: float


@dataclass(frozen=True)
class FreeRunning:
    replies: int
    runaways_before: int  # replies without an end, unquantised
    runaways_fp8: int
    new_runaways: int  # replies that end only unquantised


@dataclass(frozen=True)
class Fp8Report:
    sequences: int
    rows: int
    snr_db: dict[str, float]  # of every trunk matrix, kept ones included
    kept: list[str]
    heads: dict[Channel, HeadAgreement]
    free_running: FreeRunning | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values. The ratio is null for a product without noise."""
        content = asdict(self)
        content["snr_db"] = {n: v if math.isfinite(v) else None for n, v in self.snr_db.items()}
        return content

    def precision(self, base: BaseDtype, names: list[str]) -> dict[str, Precision]:
        fp8 = self.snr_db.keys() - set(self.kept)
        return {name: "fp8" if name in fp8 else base for name in names}


def measure_fp8(
    decoder: Decoder,
    samples: list[Sample],
    ids: RowIds,
    keep: Keep,
    replies: Replies | None = None,
    reply_count: int = 0,
    progress: Progress = lambda _: None,
) -> Fp8Report:
    """`decoder` has the unquantised weights; the device needs memory for half a trunk more. Reports
    each sequence to `progress` twice."""
    config = decoder.config
    quantised = quantise_trunk(config, decoder.weights)
    ratios = snr_db(decoder, quantised, samples, progress)
    chosen = choose_fp8(config, ratios, keep)
    weights = replace_matrices(decoder.weights, {name: quantised[name] for name in chosen})
    other = Decoder(config, weights)
    heads = _agreement(decoder, other, samples, ids, progress)
    prompts = [sample.rows[: sample.prompt_rows] for sample in samples[:reply_count]]
    running = _free_running(decoder, other, prompts, ids, replies) if replies and prompts else None
    return Fp8Report(
        sequences=len(samples),
        rows=sum(len(sample.rows) for sample in samples),
        snr_db=ratios,
        kept=[name for name in matrix_names(config) if name in ratios and name not in chosen],
        heads=heads,
        free_running=running,
    )


@torch.inference_mode()
def _agreement(
    decoder: Decoder, other: Decoder, samples: list[Sample], ids: RowIds, progress: Progress
) -> dict[Channel, HeadAgreement]:
    cosines: dict[Channel, list[Tensor]] = {channel: [] for channel in CHANNELS}
    equal: dict[Channel, list[Tensor]] = {channel: [] for channel in CHANNELS}
    for group in batches(samples):
        sequences = [sample.rows for sample in group]
        ours, theirs = run_sequences(decoder, sequences), run_sequences(other, sequences)
        for channel, rows in _rows_that_count(sequences, ids).items():
            for part in torch.split(torch.tensor(rows, device=decoder.device), _LOGIT_ROWS):
                a = decoder.logits(channel, ours[channel][part]).float()
                b = other.logits(channel, theirs[channel][part]).float()
                cosines[channel].append(torch.cosine_similarity(a, b, dim=1).cpu())
                equal[channel].append((a.argmax(1) == b.argmax(1)).cpu())
        progress(len(group))
    return {
        channel: HeadAgreement(
            rows=len(all_cosines := torch.cat(cosines[channel]).double()),
            cosine_mean=float(all_cosines.mean()),
            cosine_worst=float(all_cosines.min()),
            argmax_agreement=float(torch.cat(equal[channel]).double().mean()),
        )
        for channel in CHANNELS
        if cosines[channel]
    }


def _rows_that_count(sequences: list[list[Row]], ids: RowIds) -> dict[Channel, list[int]]:
    """Indices into the flattened rows, by the channel of the next row."""
    found: dict[Channel, list[int]] = {channel: [] for channel in CHANNELS}
    first = 0
    for rows in sequences:
        for index, follower in enumerate(rows[1:]):
            found["audio" if ids.is_speech(follower) else "text"].append(first + index)
        first += len(rows)
    return {channel: rows for channel, rows in found.items() if rows}


def _free_running(
    decoder: Decoder, other: Decoder, prompts: list[list[Row]], ids: RowIds, replies: Replies
) -> FreeRunning:
    before, after = (
        [not _ends(rows, prompt, ids) for rows, prompt in zip(made, prompts, strict=True)]
        for made in (replies(decoder, prompts), replies(other, prompts))
    )
    new = sum(b and not a for a, b in zip(before, after, strict=True))
    return FreeRunning(len(prompts), sum(before), sum(after), new)


def _ends(rows: list[Row], prompt: list[Row], ids: RowIds) -> bool:
    """A spoken reply ends with the end of speech, a text reply with a stop id."""
    spoken = prompt[-1][0] in (ids.sosp, ids.modality_pad)
    if spoken and any(ids.is_speech(row) and row[1] == ids.eosp for row in rows):
        return True
    return any(ends_reply(row, ids) for row in rows)
