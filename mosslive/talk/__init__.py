"""A live conversation: turn detection, encoding, replies, interruption, history, timing."""

from mosslive.talk.codec_service import CodecService
from mosslive.talk.conversation_file import load_turns, save_turns
from mosslive.talk.settings import TalkSettings
from mosslive.talk.talk import Talk
from mosslive.talk.turn_detection import (
    AdaptiveSilence,
    FixedSilence,
    SemanticEnd,
    TurnSettings,
)

CodecThread = CodecWorker = CodecService  # its former names

__all__ = [
    "AdaptiveSilence",
    "CodecService",
    "CodecThread",
    "CodecWorker",
    "FixedSilence",
    "SemanticEnd",
    "Talk",
    "TalkSettings",
    "TurnSettings",
    "load_turns",
    "save_turns",
]
