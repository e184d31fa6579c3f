"""How replies are drawn: a set of settings to start from, and flags that win over it."""

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
        help="Sampling settings to start from. model: the folder's generation_config.json, and the "
        "driver's for what it does not state."
    ),
]
Greedy = Annotated[
    bool | None,
    typer.Option(
        "--greedy/--sample", help="The most likely row, or a draw; default: the preset's."
    ),
]


def chosen_sampling(preset: PresetOption, model: Path, **flags: Any) -> Sampling:
    """`flags`: fields of `Sampling`; None where not given. Reads the folder for the preset "model"
    only, so that a file this package refuses can be passed over."""
    if preset is PresetOption.model:
        from mosslive.checkpoint.generation import folder_sampling

        start = folder_sampling(model)
    else:
        start = _PRESETS[preset]
    return replace(start, **{name: value for name, value in flags.items() if value is not None})
