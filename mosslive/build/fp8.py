"""Chooses the trunk matrices that become fp8 and measures what each of them loses.

e4m3 with one scale per output channel; each input row gets its own scale at run time. Knows the
weights on a device, not files. A matrix keeps its dtype if the user names it, or if its own
signal-to-noise ratio on calibration rows is below a threshold.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, cast

import torch
from torch import Tensor

from mosslive.build.calibration import Sample
from mosslive.build.forward import run_sequences
from mosslive.checkpoint.engine_layout import LAYER_MATRICES, trunk_matrices
from mosslive.config import ModelConfig, refuse
from mosslive.kernels import Matrix, quantise_rows
from mosslive.kernels.kernel_set import KernelSet
from mosslive.model import Decoder, DecoderWeights

_BATCH_ROWS = 1024  # rows of one forward pass

Progress = Callable[[int], None]  # gets the sequences done since the last call


@dataclass(frozen=True)
class Keep:
    """Which matrices keep the model's own dtype."""

    names: tuple[str, ...] = ()  # patterns of matrices (trunk.3.down) or layers (trunk.3)
    below_db: float | None = None

    def __post_init__(self) -> None:
        if self.below_db is not None and not math.isfinite(self.below_db):
            raise refuse("keep_below", self.below_db, "a finite number of decibels")

    def named(self, config: ModelConfig) -> set[str]:
        matrices = trunk_matrices(config)
        kept: set[str] = set()
        for pattern in self.names:
            found = {
                name
                for name in matrices
                if fnmatchcase(name, pattern) or fnmatchcase(name.rpartition(".")[0], pattern)
            }
            if not found:
                last = config.num_shared_layers - 1
                shown = f"trunk.0 .. trunk.{last}, or .{', .'.join(LAYER_MATRICES)} of one"
                raise refuse("keep", pattern, f"a pattern that matches {shown}")
            kept |= found
        return kept


def quantise_trunk(config: ModelConfig, weights: DecoderWeights) -> dict[str, Matrix]:
    """Every trunk matrix as fp8, on its device."""
    quantised = {}
    for name in trunk_matrices(config):
        values, scale = quantise_rows(_matrix(weights, name).weight)
        quantised[name] = Matrix(values, scale)
    return quantised


def replace_matrices(weights: DecoderWeights, matrices: dict[str, Matrix]) -> DecoderWeights:
    """The same weights with other matrices in the trunk; copies no tensor."""
    trunk = []
    for index, layer in enumerate(weights.trunk):
        names = {field: f"trunk.{index}.{field}" for field in LAYER_MATRICES}
        changed: dict[str, Any] = {f: matrices[n] for f, n in names.items() if n in matrices}
        trunk.append(replace(layer, **changed))
    return replace(weights, trunk=trunk)


def choose_fp8(config: ModelConfig, snr_db: dict[str, float], keep: Keep) -> set[str]:
    """Names of the matrices that become fp8."""
    kept = keep.named(config)
    if keep.below_db is not None:
        kept |= {name for name, value in snr_db.items() if value < keep.below_db}
    return {name for name in trunk_matrices(config) if name not in kept}


def snr_db(
    decoder: Decoder, quantised: dict[str, Matrix], samples: list[Sample], progress: Progress
) -> dict[str, float]:
    """10 · log10(Σ y² / Σ (y − y₈)²) for every matrix: y is its product with the rows that reach it
    in the unquantised model, y₈ the fp8 product with the same rows."""
    names = {id(_matrix(decoder.weights, name)): name for name in quantised}
    meter = _NoiseMeter(decoder.kernels, names, quantised)
    measured = Decoder(decoder.config, decoder.weights, cast(KernelSet, meter))
    for group in batches(samples):
        run_sequences(measured, [sample.rows for sample in group])
        progress(len(group))
    return {name: meter.ratio(name) for name in quantised}


def batches(samples: Iterable[Sample]) -> Iterable[list[Sample]]:
    """Groups samples into batches of at most `_BATCH_ROWS` rows, or one longer sample."""
    group: list[Sample] = []
    for sample in samples:
        if group and sum(len(s.rows) for s in group) + len(sample.rows) > _BATCH_ROWS:
            yield group
            group = []
        group.append(sample)
    if group:
        yield group


class _NoiseMeter:
    """The kernels of a decoder; also computes each product with a known matrix in fp8."""

    def __init__(self, kernels: Any, names: dict[int, str], quantised: dict[str, Matrix]) -> None:
        self._kernels = kernels
        self._names = names
        self._quantised = quantised
        self._sums: dict[str, Tensor] = {}  # float64 [2]: signal, noise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

    def linear(self, x: Tensor, matrix: Matrix) -> Tensor:
        product: Tensor = self._kernels.linear(x, matrix)
        self._measure(x, matrix, product)
        return product

    def gated(self, x: Tensor, matrix: Matrix) -> Tensor:
        self._measure(x, matrix, self._kernels.linear(x, matrix))
        result: Tensor = self._kernels.gated(x, matrix)
        return result

    def norm_linear(
        self, hidden: Tensor, delta: Tensor | None, norm: Tensor, eps: float, matrix: Matrix
    ) -> Tensor:
        return self.linear(self._normed(hidden, delta, norm, eps), matrix)

    def norm_feed_forward(
        self,
        hidden: Tensor,
        delta: Tensor,
        norm: Tensor,
        eps: float,
        gate_up: Matrix,
        down: Matrix,
    ) -> Tensor:
        return self.linear(self.gated(self._normed(hidden, delta, norm, eps), gate_up), down)

    def _normed(self, hidden: Tensor, delta: Tensor | None, norm: Tensor, eps: float) -> Tensor:
        kernels = self._kernels
        result: Tensor = (
            kernels.rms_norm(hidden, norm, eps)
            if delta is None
            else kernels.add_rms_norm(hidden, delta, norm, eps)
        )
        return result

    def _measure(self, x: Tensor, matrix: Matrix, product: Tensor) -> None:
        name = self._names.get(id(matrix))
        if name is None:
            return
        noise = self._kernels.linear(x, self._quantised[name]).float() - product.float()
        both = torch.stack([t.double().square().sum() for t in (product, noise)])
        self._sums[name] = self._sums[name] + both if name in self._sums else both

    def ratio(self, name: str) -> float:
        signal, noise = self._sums[name].tolist()
        return 10 * math.log10(signal / noise) if signal and noise else math.inf


def _matrix(weights: DecoderWeights, name: str) -> Matrix:
    _, index, field = name.split(".")
    matrix: Matrix = getattr(weights.trunk[int(index)], field)
    return matrix
