"""How replies of a model or engine folder are drawn, where the user does not say.

Knows the file's name and place; what it means is `config.generation`'s.
"""

from pathlib import Path

from mosslive.checkpoint.layout import GENERATION_FILE, model_folder
from mosslive.config import ConfigError, Sampling
from mosslive.config.files import read_json
from mosslive.config.generation import sampling_from


def folder_sampling(path: str | Path) -> Sampling:
    """The driver's settings, changed by the folder's `generation_config.json` if it has one."""
    file = model_folder(path) / GENERATION_FILE
    if not file.exists():
        return Sampling.driver()
    raw = read_json(file)
    try:
        return sampling_from(raw)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
