"""Averages several language models of one lineage, tensor by tensor.

    python -m recipes.bundled.lm_mean OUT CARRIED CARRIED [--shares 0.25 0.75]

A run that continues from a model ends at some distance from it. Means of runs 13 and 15 answer new
sums better than both, new words as well or better, and memorise fewer answers (figures: LOG.md).
Needs no training. Knows carried folders, not rows or sound. Invariants: all models use the same
encoder; the folder exists only when it is complete.
"""

import argparse
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mosslive.checkpoint.writer import new_folder, require_new
from mosslive.errors import MossliveError
from recipes.bundled.budget import load_carried, save_carried
from recipes.bundled.encode_corpus import encoder_digest
from recipes.bundled.sizes import SIZES_FILE


def mean_of(out: Path, folders: Sequence[Path], shares: Sequence[float] = ()) -> None:
    """`shares` are the weights of the models, equal by default. All other parts come from the first
    folder."""
    weights = list(shares) or [1.0] * len(folders)
    require_new(out)
    if len(folders) < 2:
        raise ValueError(f"{len(folders)} model; give two or more")
    if len(weights) != len(folders):
        raise ValueError(f"{len(weights)} shares of {len(folders)} models; allowed: one of each")
    if bad := [weight for weight in weights if not (math.isfinite(weight) and weight > 0)]:
        raise ValueError(f"a share of {bad[0]:g}; allowed: finite, above 0")
    first, *rest = folders
    if not (first / SIZES_FILE).is_file():
        raise ValueError(f"{first} is not a folder `carried` of a run: it has no {SIZES_FILE}")
    models = [_model(folder) for folder in folders]
    hears = encoder_digest(first)
    for folder, model in zip(rest, models[1:], strict=True):
        if encoder_digest(folder) != hears:
            raise ValueError(f"{folder} has another encoder than {first}")
        if _shapes(model) != _shapes(models[0]):
            raise ValueError(f"{folder} has another size than {first}")
    mixed = {name: torch.zeros_like(tensor) for name, tensor in models[0].items()}
    for weight, model in zip(weights, models, strict=True):
        for name, tensor in model.items():
            mixed[name] += weight / sum(weights) * tensor
    with new_folder(out) as work:
        shutil.copy(first / SIZES_FILE, work / SIZES_FILE)
        for path in first.glob("*.pt"):
            if not path.name.startswith("lm."):
                shutil.copy(path, work / path.name)
        save_carried(work, "lm", mixed)


def _model(folder: Path) -> dict[str, Tensor]:
    held = load_carried(folder, "lm")
    if held is None:
        raise ValueError(f"{folder} is not a folder `carried` of a run: it has no language model")
    return held


def _shapes(model: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="The mean of several language models.")
    parser.add_argument("out", type=Path, help="write this folder")
    parser.add_argument(
        "carried", type=Path, nargs="+", help="average these folders of runs of one lineage"
    )
    parser.add_argument(
        "--shares", type=float, nargs="+", default=[], help="set the weight of each; default: equal"
    )
    given = parser.parse_args()
    try:
        mean_of(given.out, given.carried, given.shares)
    except (ValueError, OSError, MossliveError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
