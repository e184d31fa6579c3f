"""Running the model: the plain loop, the language model as a library, and the served engine."""

from mosslive.engine.conversation import Conversation, ReplyStream
from mosslive.engine.engine import Engine, EngineStats
from mosslive.engine.errors import Busy, EngineBroken, EngineFull, StepFailed
from mosslive.engine.lm import Generation, LanguageModel, load_lm
from mosslive.engine.settings import EngineSettings
from mosslive.engine.stepper import PlainStepper, Stepper, Tails

Reply = ReplyStream  # its former name

__all__ = [
    "Busy",
    "Conversation",
    "Engine",
    "EngineBroken",
    "EngineFull",
    "EngineSettings",
    "EngineStats",
    "Generation",
    "LanguageModel",
    "PlainStepper",
    "Reply",
    "ReplyStream",
    "StepFailed",
    "Stepper",
    "Tails",
    "load_lm",
]
