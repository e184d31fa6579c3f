"""Settings as frozen dataclasses: the model, and how a reply is sampled."""

from mosslive.config.files import ConfigError, refuse
from mosslive.config.model import DTYPES, ModelConfig
from mosslive.config.sampling import SECONDS_PER_CODE, IgnoredAudio, Sampling

__all__ = [
    "DTYPES",
    "SECONDS_PER_CODE",
    "ConfigError",
    "IgnoredAudio",
    "ModelConfig",
    "Sampling",
    "refuse",
]
