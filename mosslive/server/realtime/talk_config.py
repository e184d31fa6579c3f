"""Translates the configuration of a session to settings of `Talk`: turn detection and sampling.

Pure functions, for every thread. Knows the two sets of names and nothing else.
"""

from dataclasses import replace

from mosslive.config import Sampling
from mosslive.rows import ReplyKind
from mosslive.server.backend import Backend
from mosslive.server.realtime.config import Modality, Offer, SessionConfig
from mosslive.talk import (
    AdaptiveSilence,
    FixedSilence,
    SemanticEnd,
    TalkSettings,
    TurnSettings,
)

# How much silence ends a turn with `semantic_vad` and no end-of-turn model. The maxima are below
# those of the public service (8, 4, 2 s): this detector adapts to the user's pauses, and must not
# take a gap between turns for a pause.
EAGERNESS = {
    "low": AdaptiveSilence(first_s=0.9, most_s=3.0),
    "medium": AdaptiveSilence(),
    "high": AdaptiveSilence(first_s=0.4, least_s=0.3, most_s=0.8),
}
# The same with a model. Set by `mosslive bench turns`.
SEMANTIC = {
    "low": SemanticEnd(sure=0.9, soon_s=0.4, brief_s=1.5, otherwise=EAGERNESS["low"]),
    "medium": SemanticEnd(),
    "high": SemanticEnd(sure=0.4, soon_s=0.22, brief_s=0.6, otherwise=EAGERNESS["medium"]),
}
_REPLY: dict[Modality, ReplyKind] = {"audio": "speech", "text": "text"}
_OFF_BELOW = 0.7  # of the threshold: below it the sound is silence


def offer(backend: Backend, owner: str) -> Offer:
    """What this server supports for sessions of this key."""

    def voice(requested: object) -> str:
        stored = backend.voices.find(requested, owner)
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
        transcribes=backend.codec is not None and backend.capabilities.supports("speech", "text"),
    )


def reply_kind(config: SessionConfig) -> ReplyKind:
    return _REPLY[config.modality]


def turn_settings(config: SessionConfig, longest_s: float, has_model: bool) -> TurnSettings | None:
    """`has_model`: there is an end-of-turn model for `semantic_vad`."""
    detection = config.turn_detection
    if detection is None:
        return None
    if detection["type"] == "semantic_vad":
        eagerness = detection["eagerness"]
        eagerness = "medium" if eagerness == "auto" else eagerness
        end = SEMANTIC[eagerness] if has_model else EAGERNESS[eagerness]
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
    has_model = backend.make_end_model is not None
    turns = turn_settings(config, backend.settings.max_turn_s, has_model)
    settings = backend.talk_settings(
        reply_kind(config), config.instructions, sampling(backend, config), turns, lead_s
    )
    return replace(
        settings,
        auto_reply=config.creates,
        barge_in=config.interrupts,
        speculate=backend.settings.speculate and turns is not None,
    )
