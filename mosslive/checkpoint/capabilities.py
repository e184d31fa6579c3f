"""What a model or engine folder states about its model.

Knows the file's name and place; what it means is described in `config.capabilities`.
"""

from pathlib import Path

from mosslive.checkpoint.layout import CAPABILITIES_FILE, model_folder
from mosslive.config import ConfigError
from mosslive.config.capabilities import Capabilities, capabilities_from
from mosslive.config.files import read_json
from mosslive.config.folders import CODEC_FOLDER, LM_FOLDER, named_folder


def folder_capabilities(path: str | Path) -> Capabilities:
    """Those of the folder's `capabilities.json`; no limits if it has none."""
    file = model_folder(path) / CAPABILITIES_FILE
    if not file.exists():
        return Capabilities()
    raw = read_json(file)
    try:
        return capabilities_from(raw)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def codec_capabilities(codec: str | Path) -> Capabilities:
    """Those of the model in the same model folder as this codec; no limits if there is none.
    `codec`: the codec's folder, or the model folder."""
    folder = named_folder(codec)
    home = folder.parent if folder.name == CODEC_FOLDER else folder
    return folder_capabilities(home) if (home / LM_FOLDER).is_dir() else Capabilities()
