"""Finds the parts of a model folder, the model folder that ships with the package, and the cache.

    MODEL/lm/       the language model, as published
    MODEL/codec/    the codec, as published
    MODEL/voices/   .voice files of that codec; default.voice is the default voice

The codec and the voice may also be given separately. The name "bundled" means the model that ships
with the package. Knows the paths of the parts, not their contents.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from mosslive.errors import MossliveError

BUNDLED = "bundled"
LM_FOLDER = "lm"
CODEC_FOLDER = "codec"
VOICES_FOLDER = "voices"
DEFAULT_VOICE = "default.voice"
CACHE_VARIABLE = "MOSSLIVE_CACHE"


def shipped_folder() -> Path:
    """The package folder with the bundled model, its model card and the demo's question."""
    return Path(str(files("mosslive").joinpath(BUNDLED)))


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where built engine folders are kept; need not exist. Everything in it can be made again."""
    if given := environment.get(CACHE_VARIABLE):
        return Path(given).expanduser()
    home = environment.get("XDG_CACHE_HOME")  # the standard demands an absolute path
    base = Path(home) if home and Path(home).is_absolute() else Path.home() / ".cache"
    return base / "mosslive"


def has_bundled() -> bool:
    return all((shipped_folder() / part).is_dir() for part in (LM_FOLDER, CODEC_FOLDER))


def is_bundled(path: str | Path) -> bool:
    """Whether a model folder is the bundled one, by its name or by its place."""
    home = shipped_folder()
    return Path(path) in (Path(BUNDLED), home, home / LM_FOLDER)


def named_folder(path: str | Path) -> Path:
    """Resolves the name "bundled". A user's own folder of that name needs a longer path, such as
    ./x/bundled."""
    if Path(path) != Path(BUNDLED):
        return Path(path)
    if not has_bundled():
        raise MossliveError(
            f"this copy of mosslive has no bundled model: {shipped_folder()} contains no weights. "
            f"Give a model folder (mosslive synth OUT writes a random one), or train the bundled "
            f"model: recipes/bundled/README.md"
        )
    return shipped_folder()


@dataclass(frozen=True)
class Parts:
    """Paths of the parts of a conversation. None: the part is absent."""

    model: Path
    codec: Path | None = None
    voice: Path | None = None
    voices: Path | None = None  # a folder of .voice files


def find_parts(model: str | Path, codec: Path | None = None, voice: Path | None = None) -> Parts:
    """`codec` and `voice` win if given. Otherwise the model's own codec, and the default voice in
    the same folder as the codec: a voice works only with the codec that made it."""
    home = named_folder(model)
    spoken = home if codec is None else named_folder(codec)
    if codec is None and not (home / CODEC_FOLDER).is_dir():
        return Parts(home, None, voice)
    voices = spoken / VOICES_FOLDER
    default = voices / DEFAULT_VOICE
    if voice is None and default.is_file():
        voice = default
    return Parts(home, spoken, voice, voices if voices.is_dir() else None)
