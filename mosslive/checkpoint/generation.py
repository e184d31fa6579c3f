"""Default sampling settings of a model or engine folder.

Knows the file's name and location; `config.generation` knows its meaning.
"""

from pathlib import Path

from mosslive.checkpoint.layout import GENERATION_FILE, model_folder
from mosslive.config import ConfigError, Sampling
from mosslive.config.files import read_json
from mosslive.config.generation import sampling_from


def folder_sampling(path: str | Path) -> Sampling:
    """The driver's settings, overridden by the folder's `generation_config.json` if it exists."""
    file = model_folder(path) / GENERATION_FILE
    if not file.exists():
        return Sampling.driver()
    raw = read_json(file)
    try:
        return sampling_from(raw)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
