"""Settings as frozen dataclasses: what a model is, how a reply is drawn."""

from mosslive.config.files import ConfigError, refuse
from mosslive.config.model import DTYPES, ModelConfig
from mosslive.config.sampling import IgnoredAudio, Sampling

__all__ = ["DTYPES", "ConfigError", "IgnoredAudio", "ModelConfig", "Sampling", "refuse"]
