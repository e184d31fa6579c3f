"""Checks that a loaded decoder reproduces the logits of its source: runs probes, gives a verdict.

Knows no files but the probes. The reference is float32, and only rounding may differ. The limits
therefore depend on the precision alone, never on the model or on measurements of it.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mosslive.build.forward import run_sequences
from mosslive.build.probes import Probe, read_probes
from mosslive.checkpoint.engine_folder import open_engine
from mosslive.checkpoint.engine_layout import Precision
from mosslive.checkpoint.engine_manifest import Manifest
from mosslive.checkpoint.faults import FailedProbes
from mosslive.kernels.arithmetic import arithmetic
from mosslive.model import Decoder
from mosslive.rows import CHANNELS, Channel


@dataclass(frozen=True)
class Limits:
    error: float  # largest |difference| of a head, as a share of the largest |reference logit|
    cosine: float  # smallest allowed, of the worst row


# The limits lie between rounding errors and the effect of mistakes:
#   float32: the order of summation changes 1e-6 of the scale; the parity tests allow 1e-4.
#   bfloat16: random models of 36 layers reach an error of 0.02 and a cosine of 0.9998. Published
#     ports of the true weights agree to a cosine of 0.99997; their published tolerance is 4.5 of
#     114, an error of 0.04. Swapped layers or dropped QK norms give a cosine of 0.998 or less.
#   fp8: e4m3 gives each product 29 dB of signal to noise. Random models of 36 layers reach an error
#     of 0.07 and a cosine of 0.998; published 8-bit ports require a cosine of 0.99. A mistake with
#     a small effect on the logits can hide in this noise, so the other precisions have tighter
#     limits.
LIMITS: dict[Precision, Limits] = {
    "float32": Limits(error=1e-4, cosine=0.999999),
    "bfloat16": Limits(error=0.05, cosine=0.999),
    "fp8": Limits(error=0.15, cosine=0.99),
}


@dataclass(frozen=True)
class HeadResult:
    rows: int
    error: float
    cosine: float
    argmax_agreement: float  # for information; not part of the verdict
    passed: bool


@dataclass(frozen=True)
class Verdict:
    precision: Precision
    limits: Limits
    heads: dict[Channel, HeadResult]

    @property
    def passed(self) -> bool:
        return all(head.passed for head in self.heads.values())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}

    def require(self) -> None:
        if self.passed:
            return
        shown = [
            f"{name} head: error {head.error:.2g} of the logit scale, cosine {head.cosine:.6f}"
            for name, head in self.heads.items()
            if not head.passed
        ]
        allowed = f"error {self.limits.error:g}, cosine {self.limits.cosine:g}"
        names: list[str] = [name for name, head in self.heads.items() if not head.passed]
        raise FailedProbes(names, f"allowed for {self.precision}: {allowed}", shown)


def overall_precision(manifest: Manifest) -> Precision:
    """The lowest precision in the engine; it determines the limits."""
    return "fp8" if "fp8" in manifest.precision.values() else manifest.dtype


def check_probes(decoder: Decoder, probes: list[Probe], precision: Precision) -> Verdict:
    """Runs the probes on the decoder's device."""
    limits = LIMITS[precision]
    with arithmetic("fp32"):
        found = [_logits(decoder, probe) for probe in probes]
    heads: dict[Channel, HeadResult] = {}
    for channel in CHANNELS:
        ours = torch.cat([logits[channel] for logits in found])
        wanted = torch.cat([probe.logits[channel] for probe in probes])
        heads[channel] = _compare(ours, wanted, limits)
    return Verdict(precision, limits, heads)


def quick_check(decoder: Decoder, folder: str | Path) -> None:
    """Runs one probe, a few dozen rows: milliseconds on a GPU. Raises `FailedProbes`."""
    engine = open_engine(folder)
    probes = read_probes(engine.probes_path)[:1]
    check_probes(decoder, probes, overall_precision(engine.manifest)).require()


def _logits(decoder: Decoder, probe: Probe) -> dict[Channel, Tensor]:
    tails = run_sequences(decoder, [probe.rows])
    return {
        c: decoder.logits(c, tails[c][torch.tensor(probe.positions, device=decoder.device)])
        .float()
        .cpu()
        for c in CHANNELS
    }


def _compare(ours: Tensor, wanted: Tensor, limits: Limits) -> HeadResult:
    """Both [n, V]. A NaN fails every comparison."""
    error = float((ours - wanted).abs().max() / wanted.abs().max())
    cosine = float(torch.cosine_similarity(ours.double(), wanted.double(), dim=1).min())
    agreement = float((ours.argmax(1) == wanted.argmax(1)).double().mean())
    passed = error <= limits.error and cosine >= limits.cosine
    return HeadResult(len(ours), error, cosine, agreement, passed)
