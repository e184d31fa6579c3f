"""A whole model: one folder with everything a conversation needs; and the one that is shipped.

    MODEL/lm/       the language model, as published
    MODEL/codec/    the codec, as published
    MODEL/voices/   .voice files of that codec; default.voice speaks where no other is asked for

Each part may be named apart instead. The name "bundled" stands, wherever a folder can be named, for
the model that comes with the package. Knows where parts lie, not what is in them.
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from mosslive.errors import MossliveError

BUNDLED = "bundled"
LM_FOLDER = "lm"
CODEC_FOLDER = "codec"
VOICES_FOLDER = "voices"
DEFAULT_VOICE = "default.voice"


def shipped_folder() -> Path:
    """Where the package keeps its model, its card and the questions of the demo."""
    return Path(str(files("mosslive").joinpath(BUNDLED)))


def has_bundled() -> bool:
    return all((shipped_folder() / part).is_dir() for part in (LM_FOLDER, CODEC_FOLDER))


def named_folder(path: str | Path) -> Path:
    """The folder a user means. A folder of one's own that is called "bundled" needs more of its
    path than that."""
    if Path(path) != Path(BUNDLED):
        return Path(path)
    if not has_bundled():
        raise MossliveError(
            f"the bundled model is not in this copy of mosslive: {shipped_folder()} holds no "
            f"weights. Name a model folder (mosslive synth OUT makes a random one), or make the "
            f"model again: recipes/bundled/README.md"
        )
    return shipped_folder()


@dataclass(frozen=True)
class Parts:
    """What a conversation is made of; what is None is not there."""

    model: Path
    codec: Path | None = None
    voice: Path | None = None
    voices: Path | None = None  # a folder of .voice files


def find_parts(model: str | Path, codec: Path | None = None, voice: Path | None = None) -> Parts:
    """`codec` and `voice` where they are named; else the model's own codec, and the default voice
    that lies beside the codec: a voice belongs to the codec that made it."""
    home = named_folder(model)
    spoken = home if codec is None else named_folder(codec)
    if codec is None and not (home / CODEC_FOLDER).is_dir():
        return Parts(home, None, voice)
    voices = spoken / VOICES_FOLDER
    default = voices / DEFAULT_VOICE
    if voice is None and default.is_file():
        voice = default
    return Parts(home, spoken, voice, voices if voices.is_dir() else None)
