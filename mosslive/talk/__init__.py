"""A live conversation: listening, turn taking, speaking, interruption, memory, timing."""

from mosslive.talk.codec_thread import CodecThread
from mosslive.talk.saved import load_turns, save_turns
from mosslive.talk.settings import TalkSettings
from mosslive.talk.talk import Talk
from mosslive.talk.turns import AdaptiveSilence, FixedSilence, TurnSettings

__all__ = [
    "AdaptiveSilence",
    "CodecThread",
    "FixedSilence",
    "Talk",
    "TalkSettings",
    "TurnSettings",
    "load_turns",
    "save_turns",
]
