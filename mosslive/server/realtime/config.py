"""The configuration of a session: reads a client's fields, keeps what is in force, shows it.

An update changes only the fields that it has. Fields that have no effect here and do no harm
(tracing, ...) are kept and shown as given. Fields that would change the replies and are not
supported (tools, speed, noise reduction) are shown with the value in force; `notices` says that
tools are not. A malformed field raises `ApiError`, and nothing changes. Always in GA names;
`beta_events` translates. Pure functions over frozen data, for every thread. Knows no events and no
conversation.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mosslive.server.realtime import fields
from mosslive.server.realtime.formats import AudioFormat, read_format

Modality = Literal["audio", "text"]
Kind = Literal["realtime", "transcription"]

MOST_TOKENS = 4096
LEAST_IDLE_MS, MOST_IDLE_MS = 100, 30_000
_EAGERNESS = ("low", "medium", "high", "auto")
# Shown as given.
_SHOWN: dict[str, Any] = {
    "truncation": "auto",
    "tracing": None,
    "prompt": None,
    "include": None,
}
NO_TOOLS = "tools and tool_choice are not in force: this model calls no functions"
SERVER_VAD: dict[str, Any] = {
    "type": "server_vad",
    "threshold": 0.5,
    "prefix_padding_ms": 300,
    "silence_duration_ms": 500,
    "create_response": True,
    "interrupt_response": True,
    "idle_timeout_ms": None,
}


@dataclass(frozen=True)
class SessionConfig:
    model: str
    voice: str
    instructions: str
    modality: Modality = "audio"
    max_tokens: int | None = None  # None: "inf"
    input_format: AudioFormat = field(default_factory=AudioFormat)
    output_format: AudioFormat = field(default_factory=AudioFormat)
    turn_detection: dict[str, Any] | None = field(default_factory=lambda: dict(SERVER_VAD))
    transcription: dict[str, Any] | None = None
    temperature: float | None = None  # of beta, and an extension of ours in GA; None: the server's
    shown: dict[str, Any] = field(default_factory=lambda: dict(_SHOWN))
    kind: Kind = "realtime"
    tools_asked: bool = False  # by the client; they are not in force

    @property
    def replies(self) -> bool:
        """Whether the session has responses. One of type transcription has none."""
        return self.kind == "realtime"

    @property
    def creates(self) -> bool:
        """Whether the end of the user's turn creates a response."""
        detection = self.turn_detection
        return self.replies and bool(detection and detection["create_response"])

    @property
    def interrupts(self) -> bool:
        """Whether speech of the user cancels a response."""
        detection = self.turn_detection
        return self.replies and bool(detection and detection["interrupt_response"])

    @property
    def included(self) -> list[Any]:
        """The optional events that the client wants."""
        include = self.shown["include"]
        return include if isinstance(include, list) else []

    def document(self) -> dict[str, Any]:
        if not self.replies:
            return self._transcription_document()
        tokens: int | str = "inf" if self.max_tokens is None else self.max_tokens
        extension: dict[str, Any] = {}
        if self.temperature is not None:
            extension["temperature"] = self.temperature
        if self.tools_asked:
            extension["notices"] = [NO_TOOLS]
        return {
            "type": "realtime",
            "object": "realtime.session",
            "model": self.model,
            "output_modalities": [self.modality],
            "instructions": self.instructions,
            "max_output_tokens": tokens,
            "audio": {
                "input": {
                    "format": self.input_format.document(),
                    "noise_reduction": None,
                    "transcription": self.transcription,
                    "turn_detection": self.turn_detection,
                },
                "output": {
                    "format": self.output_format.document(),
                    "voice": self.voice,
                    "speed": 1.0,
                },
            },
            "tools": [],
            "tool_choice": "none",
            **self.shown,
            **extension,
        }

    def _transcription_document(self) -> dict[str, Any]:
        of_replies = ("create_response", "interrupt_response", "idle_timeout_ms")
        detection = self.turn_detection and {
            name: value for name, value in self.turn_detection.items() if name not in of_replies
        }
        return {
            "type": "transcription",
            "object": "realtime.transcription_session",
            "audio": {
                "input": {
                    "format": self.input_format.document(),
                    "noise_reduction": None,
                    "transcription": self.transcription,
                    "turn_detection": detection,
                }
            },
            "include": self.shown["include"],
        }


@dataclass(frozen=True)
class Offer:
    """What this server supports, for the fields whose value in force depends on it."""

    voice: Callable[[object], str]  # a requested voice → the name of the voice in force
    speaks: bool
    transcripts: bool
    max_chars: int
    instructions: Callable[[Modality], str]  # if the client gives none
    writes: bool = True  # whether the model was trained to reply in text
    transcribes: bool = True  # whether it can write down speech; sessions of that type need it


def first_config(offer: Offer, model: str) -> SessionConfig:
    """The configuration of a new session."""
    modality: Modality = "audio" if offer.speaks else "text"
    return SessionConfig(model, offer.voice(""), offer.instructions(modality), modality)


def merged(config: SessionConfig, raw: dict[str, Any], offer: Offer) -> SessionConfig:
    """The configuration with the fields of a `session.update`."""
    config = _of_kind(config, _kind(raw, config, offer), offer)
    changes = output_changes(raw, offer, "session.") if config.replies else {}
    audio_in = fields.record(_audio(raw, "session."), "input", "session.audio.", {})
    where = "session.audio.input."
    if audio_in.get("format") is not None:
        changes["input_format"] = read_format(audio_in["format"], where + "format")
    if "turn_detection" in audio_in:
        detection = fields.record(audio_in, "turn_detection", where, None)
        changes["turn_detection"] = _detection(detection, config.turn_detection)
    if "transcription" in audio_in:
        wanted = fields.record(audio_in, "transcription", where, None)
        if config.replies:
            changes["transcription"] = wanted if offer.transcripts else None
        elif wanted:  # a session of type transcription has it always
            changes["transcription"] = wanted
    if "noise_reduction" in audio_in:
        fields.record(audio_in, "noise_reduction", where, None)
    modality = changes.get("modality", config.modality)
    if config.instructions == offer.instructions(config.modality):
        # Default instructions follow the modality: a prompt to speak does not fit a text reply.
        changes.setdefault("instructions", offer.instructions(modality))
    if config.replies and ("tools" in raw or "tool_choice" in raw):
        asked = bool(raw.get("tools")) or raw.get("tool_choice") not in (None, "none", "auto")
        changes["tools_asked"] = asked
    shown = {name: raw[name] for name in config.shown if name in raw}
    return replace(config, **changes, shown=config.shown | shown)


def with_intent(raw: dict[str, Any] | None, intent: str | None) -> dict[str, Any] | None:
    """The fields that a session begins with. `intent`: of the query; beta clients, and GA clients
    before their first update, choose the type of the session by it."""
    if intent != "transcription":
        return raw
    return (raw or {}) | {"type": "transcription"}


def _kind(raw: dict[str, Any], config: SessionConfig, offer: Offer) -> Kind:
    asked = raw.get("type", config.kind)
    if asked == "transcription" and not offer.transcribes:
        why = "this server does not write down speech"
        raise fields.bad("session.type", asked, f"realtime; {why}")
    kinds: tuple[Kind, ...] = ("realtime", "transcription")
    fields.choice(asked, kinds, "session.type")
    return kinds[kinds.index(asked)]


def _of_kind(config: SessionConfig, kind: Kind, offer: Offer) -> SessionConfig:
    """The configuration for a session of this type. What both types have in common stays."""
    if kind == config.kind:
        return config
    if kind == "transcription":
        # Transcripts are text replies, so the conversation needs no voice.
        wanted = config.transcription or {"model": config.model}
        return replace(config, kind=kind, modality="text", transcription=wanted)
    first = first_config(offer, config.model)
    common = {"input_format": config.input_format, "turn_detection": config.turn_detection}
    return replace(first, **common)  # type: ignore[arg-type]


def output_changes(raw: dict[str, Any], offer: Offer, where: str) -> dict[str, Any]:
    """The changes by fields that `session.update` and `response.create` have in common."""
    changes: dict[str, Any] = {}
    if raw.get("output_modalities") is not None:
        wanted = _modality(raw["output_modalities"], where)
        if wanted == "text" and not offer.writes:
            raise fields.bad(
                f"{where}output_modalities", [wanted], "audio; the model does not reply in text"
            )
        changes["modality"] = wanted if offer.speaks else "text"
    if raw.get("instructions") is not None:
        changes["instructions"] = _instructions(raw, offer.max_chars, where)
    if raw.get("max_output_tokens") is not None:
        changes["max_tokens"] = _tokens(raw, where)
    if raw.get("temperature") is not None:
        changes["temperature"] = fields.number(raw, "temperature", 0.01, 2.0, where)
    output = fields.record(_audio(raw, where), "output", f"{where}audio.", {})
    there = f"{where}audio.output."
    if output.get("format") is not None:
        changes["output_format"] = read_format(output["format"], there + "format")
    if output.get("voice") is not None:
        changes["voice"] = offer.voice(output["voice"])
    if output.get("speed") is not None:
        fields.number(output, "speed", 0.25, 1.5, there)
    return changes


def _audio(raw: dict[str, Any], where: str) -> dict[str, Any]:
    audio: dict[str, Any] = fields.record(raw, "audio", where, {})
    return audio


def _modality(raw: object, where: str) -> Modality:
    if raw == ["audio"] or (isinstance(raw, list) and sorted(map(str, raw)) == ["audio", "text"]):
        return "audio"  # audio always comes with a transcript
    if raw == ["text"]:
        return "text"
    raise fields.bad(f"{where}output_modalities", raw, '["audio"] or ["text"]')


def _instructions(raw: dict[str, Any], most: int, where: str) -> str:
    text: str = fields.text(raw, "instructions", where)
    if len(text) > most:
        raise fields.bad(f"{where}instructions", text, f"at most {most} characters")
    return text


def _tokens(raw: dict[str, Any], where: str) -> int | None:
    if raw["max_output_tokens"] == "inf":
        return None
    tokens: int = fields.whole(raw, "max_output_tokens", 1, MOST_TOKENS, where)
    return tokens


def _detection(raw: dict[str, Any] | None, before: dict[str, Any] | None) -> dict[str, Any] | None:
    if raw is None:
        return None
    where = "session.audio.input.turn_detection."
    kind = raw.get("type", before["type"] if before else "server_vad")
    kind = fields.choice(kind, ("server_vad", "semantic_vad"), f"{where}type")
    old = before if before and before["type"] == kind else {}

    def kept(name: str, default: Any) -> Any:
        return old.get(name, default)

    booleans = {
        name: fields.flag(raw, name, where, kept(name, True))
        for name in ("create_response", "interrupt_response")
    }
    if kind == "semantic_vad":
        eagerness = raw.get("eagerness") or kept("eagerness", "auto")
        fields.choice(eagerness, _EAGERNESS, f"{where}eagerness")
        return {"type": kind, "eagerness": eagerness, **booleans}
    numbers = {
        "threshold": fields.number(raw, "threshold", 0, 1, where, kept("threshold", 0.5)),
        "prefix_padding_ms": fields.whole(
            raw, "prefix_padding_ms", 0, 5000, where, kept("prefix_padding_ms", 300)
        ),
        "silence_duration_ms": fields.whole(
            raw, "silence_duration_ms", 0, 20_000, where, kept("silence_duration_ms", 500)
        ),
    }
    idle_ms = kept("idle_timeout_ms", None)
    if "idle_timeout_ms" in raw:
        idle_ms = fields.whole(raw, "idle_timeout_ms", LEAST_IDLE_MS, MOST_IDLE_MS, where, None)
    return {"type": kind, **numbers, **booleans, "idle_timeout_ms": idle_ms}
