"""Settings as frozen dataclasses: what a model is, how a reply is drawn."""

from mosslive.config.model import DTYPES, ConfigError, ModelConfig, refuse
from mosslive.config.sampling import IgnoredAudio, Sampling

__all__ = ["DTYPES", "ConfigError", "IgnoredAudio", "ModelConfig", "Sampling", "refuse"]
