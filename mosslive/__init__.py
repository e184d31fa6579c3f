"""mosslive: a runtime for live conversations with MOSS-Speech.

`__all__` lists the public names. Each is imported on first use, so importing the package is fast
and does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mosslive.version import __version__

if TYPE_CHECKING:
    from mosslive.cache import OutOfPages
    from mosslive.codec import Codec, Sound, Voice, load_bigvgan, load_codec
    from mosslive.config import ModelConfig, Sampling
    from mosslive.engine import (
        Conversation,
        Engine,
        EngineFull,
        EngineSettings,
        Generation,
        LanguageModel,
        load_lm,
    )
    from mosslive.errors import MossliveError
    from mosslive.rows import DRIVER_SYSTEM, Output, Turn
    from mosslive.talk import Talk, TalkSettings

_PACKAGE_OF = {
    "Codec": "mosslive.codec",
    "DRIVER_SYSTEM": "mosslive.rows",
    "Conversation": "mosslive.engine",
    "Engine": "mosslive.engine",
    "EngineFull": "mosslive.engine",
    "EngineSettings": "mosslive.engine",
    "Generation": "mosslive.engine",
    "LanguageModel": "mosslive.engine",
    "ModelConfig": "mosslive.config",
    "MossliveError": "mosslive.errors",
    "OutOfPages": "mosslive.cache",
    "Output": "mosslive.rows",
    "Sampling": "mosslive.config",
    "Sound": "mosslive.codec",
    "Talk": "mosslive.talk",
    "TalkSettings": "mosslive.talk",
    "Turn": "mosslive.rows",
    "Voice": "mosslive.codec",
    "load_bigvgan": "mosslive.codec",
    "load_codec": "mosslive.codec",
    "load_lm": "mosslive.engine",
}

__all__ = [
    "DRIVER_SYSTEM",
    "Codec",
    "Conversation",
    "Engine",
    "EngineFull",
    "EngineSettings",
    "Generation",
    "LanguageModel",
    "ModelConfig",
    "MossliveError",
    "OutOfPages",
    "Output",
    "Sampling",
    "Sound",
    "Talk",
    "TalkSettings",
    "Turn",
    "Voice",
    "__version__",
    "load_bigvgan",
    "load_codec",
    "load_lm",
]


def __getattr__(name: str) -> Any:
    if name not in _PACKAGE_OF:
        raise AttributeError(f"module 'mosslive' has no attribute {name!r}")
    return getattr(import_module(_PACKAGE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
