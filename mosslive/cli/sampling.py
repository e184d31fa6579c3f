"""Sampling options of the command line: a preset, and flags that override it."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from mosslive.config import Sampling


class PresetOption(StrEnum):
    model = "model"
    driver = "driver"
    model_card = "model-card"
    plain = "plain"


_PRESETS = {
    PresetOption.driver: Sampling.driver(),
    PresetOption.model_card: Sampling.model_card(),
    PresetOption.plain: Sampling(),
}

Preset = Annotated[
    PresetOption,
    typer.Option(
        help="Start from these sampling settings: the model's generation_config.json, the "
        "publishers' demo (driver), their model card, or none (plain)."
    ),
]
Greedy = Annotated[
    bool | None,
    typer.Option(
        "--greedy/--sample", help="Take the most likely ids, or sample (default: the preset's)."
    ),
]


def chosen_sampling(preset: PresetOption, model: Path, **flags: Any) -> Sampling:
    """`flags`: fields of `Sampling`, None if not given. Reads the folder only for the preset
    "model", so that another preset works with an unsupported generation_config.json."""
    if preset is PresetOption.model:
        from mosslive.checkpoint.generation import folder_sampling

        start = folder_sampling(model)
    else:
        start = _PRESETS[preset]
    return replace(start, **{name: value for name, value in flags.items() if value is not None})
