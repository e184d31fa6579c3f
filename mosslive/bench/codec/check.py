"""Shared by all parts of the codec benchmark: precisions, checks, and times of verified outputs.

Knows no network. Invariant: a `Row` holds a time only if its output was finite, not constant, and
as close to the float32 CPU result as its precision allows (`Closeness`), codes up to `LEAST_SAME`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from mosslive.bench.timing import summary, times_ms
from mosslive.bench.verified import NotVerified
from mosslive.kernels.arithmetic import Precision

Form = Literal["eager", "graph"]
HALVES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}

LARGEST_ERROR = 2e-3  # of the largest value, float32 without TF32; most are near 1e-5
LEAST_COSINE = 0.999  # for precisions below float32
LEAST_SAME = 0.98  # of codes: near-ties can differ in products of other shapes


@dataclass(frozen=True)
class Closeness:
    error: float  # largest difference, as a share of the reference's largest value
    cosine: float

    def allowed(self, precision: Precision) -> bool:
        if precision == "fp32":
            return self.error <= LARGEST_ERROR
        return self.cosine >= LEAST_COSINE


@dataclass(frozen=True)
class Row:
    part: str
    what: str
    streams: int
    precision: Precision
    form: Form
    error: float  # see Closeness
    cosine: float
    sound_ms: float  # per stream
    median_ms: float | None = None  # None: too far from float32, so not timed
    p10_ms: float | None = None
    p90_ms: float | None = None
    times: int = 0
    goal_ms: float | None = None
    wave_cosine: float | None = None  # of the sound made from the compared mel
    same_codes: float | None = None  # share of codes that equal the reference's

    @property
    def real_time(self) -> float | None:
        """Duration of the sound of all streams divided by wall time."""
        return None if self.median_ms is None else self.streams * self.sound_ms / self.median_ms


def compare(name: str, ours: Tensor, wanted: Tensor) -> Closeness:
    """`wanted` is the float32 CPU result. Raises `NotVerified` for a wrong shape or values that are
    constant or not finite."""
    ours, wanted = ours.detach().double().cpu(), wanted.detach().double().cpu()
    if ours.shape != wanted.shape:
        raise NotVerified(f"{name}: shape {list(ours.shape)} instead of {list(wanted.shape)}")
    if not torch.isfinite(ours).all() or float(ours.std()) == 0:
        raise NotVerified(f"{name}: the output is constant or not finite")
    error = float((ours - wanted).abs().max() / wanted.abs().max())
    return Closeness(error, float(torch.cosine_similarity(ours.flatten(), wanted.flatten(), 0)))


def timed(
    row: Row,
    work: Callable[[], object],
    device: str,
    repeats: int,
    prepare: Callable[[], None] | None = None,
) -> Row:
    """Returns the row with its times if its closeness allows them. Raises `NotVerified` for a wrong
    float32 result. Returns a lower precision that is too far off without a time."""
    same = 1.0 if row.same_codes is None else row.same_codes
    if not Closeness(row.error, row.cosine).allowed(row.precision) or same < LEAST_SAME:
        if row.precision == "fp32":
            name = f"{row.part}, {row.what}, {row.streams} streams, {row.form}"
            codes = "" if row.same_codes is None else f"; {same:.1%} of its codes are equal"
            raise NotVerified(
                f"{name}: differs from the CPU's by {row.error:.1e} of its scale{codes}"
            )
        return row
    times = summary(times_ms(work, device, repeats, prepare))
    return replace(
        row,
        median_ms=times.median_ms,
        p10_ms=times.p10_ms,
        p90_ms=times.p90_ms,
        times=times.count,
    )
