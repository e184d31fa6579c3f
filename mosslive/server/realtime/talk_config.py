"""A session's configuration as a conversation wants it: how turns are taken, replies drawn.

Pure translation. Knows the two vocabularies, and nothing else.
"""

from dataclasses import replace

from mosslive.config import Sampling
from mosslive.rows import ReplyKind
from mosslive.server.backend import Backend
from mosslive.server.realtime.config import Modality, Offer, SessionConfig
from mosslive.talk import AdaptiveSilence, FixedSilence, TalkSettings, TurnSettings

# How long a semantic VAD waits. At most less than the public service (8, 4, 2 s): this one learns
# from pauses, and a gap between two turns must not be taken for one.
_EAGERNESS = {
    "low": AdaptiveSilence(first_s=0.9, most_s=3.0),
    "medium": AdaptiveSilence(),
    "high": AdaptiveSilence(first_s=0.4, least_s=0.3, most_s=0.8),
}
_REPLY: dict[Modality, ReplyKind] = {"audio": "speech", "text": "text"}
_OFF_BELOW = 0.7  # of the threshold: where speech is taken to have ended


def offer(backend: Backend, owner: str) -> Offer:
    """What this server has for sessions of that key."""

    def voice(asked: object) -> str:
        stored = backend.voices.find(asked, owner)
        return stored.name if stored else "none"

    def instructions(modality: Modality) -> str:
        return backend.instructions(_REPLY[modality])

    return Offer(
        voice,
        backend.speaks,
        backend.transcripts,
        backend.settings.max_text_chars,
        instructions,
        writes="text" in backend.capabilities.replies(),
    )


def reply_kind(config: SessionConfig) -> ReplyKind:
    return _REPLY[config.modality]


def turn_settings(config: SessionConfig, longest_s: float) -> TurnSettings | None:
    detection = config.turn_detection
    if detection is None:
        return None
    if detection["type"] == "semantic_vad":
        eagerness = detection["eagerness"]
        end = _EAGERNESS["medium" if eagerness == "auto" else eagerness]
        return TurnSettings(end=end, longest_s=longest_s)
    on = min(1.0, max(0.01, detection["threshold"]))
    return TurnSettings(
        on=on,
        off=_OFF_BELOW * on,
        preroll_s=detection["prefix_padding_ms"] / 1000,
        end=FixedSilence(detection["silence_duration_ms"] / 1000),
        longest_s=longest_s,
    )


def sampling(backend: Backend, config: SessionConfig) -> Sampling:
    return backend.sampling(config.max_tokens, config.temperature)


def talk_settings(backend: Backend, config: SessionConfig, lead_s: float | None) -> TalkSettings:
    turns = turn_settings(config, backend.settings.max_turn_s)
    settings = backend.talk_settings(
        reply_kind(config), config.instructions, sampling(backend, config), turns, lead_s
    )
    return replace(settings, auto_reply=config.creates, barge_in=config.interrupts)
