"""Does a loaded decoder give the logits its source gives? Probes through it, errors, a verdict.

Knows no files but the probes. The reference is float32; what may differ is rounding, so the limits
follow from the precision alone, never from the model at hand or from what was measured on it.
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
    cosine: float  # of the worst row, at least


# The limits stand between rounding and mistakes, as far from each as can be told:
#   float32: orders of summing leave 1e-6 of the scale; 1e-4 is what the parity tests allow.
#   bfloat16: random models of 36 layers reach an error of 0.02 and a cosine of 0.9998; published
#     ports of the true weights agree among themselves to 0.99997, and the tolerance frozen for them
#     is 4.5 of 114, an error of 0.04. Exchanged layers or dropped QK norms give 0.998 and less.
#   fp8: e4m3 leaves 29 dB of signal to noise in each product. Random models of 36 layers reach an
#     error of 0.07 and a cosine of 0.998; 0.99 is the floor published 8-bit ports are held to. A
#     mistake that hardly changes the logits can hide below this noise, which is why the other
#     precisions have limits of their own.
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
    argmax_agreement: float  # follows from the error, and is told because people ask for it
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
    """The coarsest that occurs: it bounds what the logits can be."""
    return "fp8" if "fp8" in manifest.precision.values() else manifest.dtype


def judge(decoder: Decoder, probes: list[Probe], precision: Precision) -> Verdict:
    """Runs the probes with the decoder as it is, on its device."""
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
    """One probe of the folder; raises `FailedProbes`. A few dozen rows: milliseconds on a GPU."""
    engine = open_engine(folder)
    probes = read_probes(engine.probes_path)[:1]
    judge(decoder, probes, overall_precision(engine.manifest)).require()


def _logits(decoder: Decoder, probe: Probe) -> dict[Channel, Tensor]:
    tails = run_sequences(decoder, [probe.rows])
    return {
        c: decoder.logits(c, tails[c][torch.tensor(probe.positions, device=decoder.device)])
        .float()
        .cpu()
        for c in CHANNELS
    }


def _compare(ours: Tensor, wanted: Tensor, limits: Limits) -> HeadResult:
    """[n, V] each. A NaN anywhere fails every comparison it meets."""
    error = float((ours - wanted).abs().max() / wanted.abs().max())
    cosine = float(torch.cosine_similarity(ours.double(), wanted.double(), dim=1).min())
    agreement = float((ours.argmax(1) == wanted.argmax(1)).double().mean())
    passed = error <= limits.error and cosine >= limits.cosine
    return HeadResult(len(ours), error, cosine, agreement, passed)
