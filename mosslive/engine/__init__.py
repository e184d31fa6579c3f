"""Running the model: the plain loop, and the language model as a library."""

from mosslive.engine.lm import Generation, LanguageModel, load_lm
from mosslive.engine.loop import Tails

__all__ = ["Generation", "LanguageModel", "Tails", "load_lm"]
