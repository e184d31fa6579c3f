"""Translates events between the GA and the beta version of the Realtime API.

All other code uses GA names. `RealtimeSession` translates the events of a client that asked for
beta, in both directions. Pure functions over JSON, for every thread. They never raise: a malformed
client event passes through, and its handler refuses it.
"""

from typing import Any

from mosslive.server.api_errors import Event
from mosslive.server.realtime.formats import BETA_NAMES

_BETA_TYPES = {
    "conversation.item.added": "conversation.item.created",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
}
TRANSCRIPTION_UPDATE = "transcription_session.update"
_NOT_IN_BETA = {"conversation.item.done", "input_audio_buffer.timeout_triggered"}
_CONTENT_TO_BETA = {"output_text": "text", "output_audio": "audio"}
_CONTENT_FROM_BETA = {"text": "output_text", "audio": "output_audio"}
_FORMATS_FROM_BETA = {beta: {"type": kind} for kind, beta in BETA_NAMES.items()}


def to_beta(event: Event) -> Event | None:
    """A server event in beta names. None: beta has no such event."""
    if event["type"] in _NOT_IN_BETA:
        return None
    event = event | {"type": _BETA_TYPES.get(event["type"], event["type"])}
    if event.get("session", {}).get("type") == "transcription":
        event["type"] = f"transcription_{event['type']}"
    if "session" in event:
        event["session"] = session_to_beta(event["session"])
    if "response" in event:
        event["response"] = _response_to_beta(event["response"])
    if "item" in event:
        event["item"] = _item_to_beta(event["item"])
    return event


def from_beta(event: Event) -> Event:
    """A client event in GA names."""
    event = dict(event)
    if isinstance(event.get("session"), dict):
        event["session"] = session_from_beta(event["session"])
    if event["type"] == TRANSCRIPTION_UPDATE:
        event["type"] = "session.update"
        if isinstance(event.get("session"), dict):
            event["session"]["type"] = "transcription"
    if isinstance(event.get("response"), dict):
        event["response"] = _response_from_beta(event["response"])
    if isinstance(event.get("item"), dict):
        event["item"] = _item_from_beta(event["item"])
    return event


def session_to_beta(session: dict[str, Any]) -> dict[str, Any]:
    """The flat session object of beta."""
    if session["type"] == "transcription":
        return _transcription_to_beta(session)
    audio_in, audio_out = session["audio"]["input"], session["audio"]["output"]
    shown = _some(session, ("tools", "tool_choice", "notices"))
    ids = _some(session, ("id", "expires_at"))
    return {
        **ids,
        "object": session["object"],
        "model": session["model"],
        "modalities": _modalities(session["output_modalities"]),
        "instructions": session["instructions"],
        "voice": audio_out["voice"],
        "speed": audio_out["speed"],
        "input_audio_format": BETA_NAMES[audio_in["format"]["type"]],
        "output_audio_format": BETA_NAMES[audio_out["format"]["type"]],
        "input_audio_transcription": audio_in["transcription"],
        "input_audio_noise_reduction": audio_in["noise_reduction"],
        "turn_detection": _detection_to_beta(audio_in["turn_detection"]),
        "temperature": session.get("temperature", 0.8),
        "max_response_output_tokens": session["max_output_tokens"],
        **shown,
    }


def session_from_beta(raw: dict[str, Any]) -> dict[str, Any]:
    """A session object in GA names. Fields that have GA names already stay."""
    same = (
        *("instructions", "temperature", "tools", "tool_choice", "tracing", "audio", "model"),
        "include",
    )
    session = _some(raw, same)
    session |= _renamed(raw, {"max_response_output_tokens": "max_output_tokens"})
    session |= _modalities_from_beta(raw)
    renamed_in = {
        "input_audio_transcription": "transcription",
        "input_audio_noise_reduction": "noise_reduction",
        "turn_detection": "turn_detection",
    }
    audio_in = _renamed(raw, renamed_in) | _format_from_beta(raw, "input_audio_format")
    audio_out = _output_from_beta(raw) | _renamed(raw, {"speed": "speed"})
    if audio_in or audio_out:
        session["audio"] = {"input": audio_in, "output": audio_out}
    return session


def _transcription_to_beta(session: dict[str, Any]) -> dict[str, Any]:
    audio_in = session["audio"]["input"]
    return {
        **_some(session, ("id", "expires_at", "object", "include")),
        "modalities": ["text"],
        "input_audio_format": BETA_NAMES[audio_in["format"]["type"]],
        "input_audio_transcription": audio_in["transcription"],
        "input_audio_noise_reduction": audio_in["noise_reduction"],
        "turn_detection": audio_in["turn_detection"],
    }


def _response_from_beta(raw: dict[str, Any]) -> dict[str, Any]:
    response = dict(raw) | _renamed(raw, {"max_response_output_tokens": "max_output_tokens"})
    response |= _modalities_from_beta(raw)
    audio_out = _output_from_beta(raw)
    if audio_out:
        response["audio"] = {"output": audio_out}
    if isinstance(raw.get("input"), list):
        response["input"] = [
            _item_from_beta(item) if isinstance(item, dict) else item for item in raw["input"]
        ]
    return response


def _response_to_beta(response: dict[str, Any]) -> dict[str, Any]:
    output = response["audio"]["output"]
    same = ("id", "object", "status", "status_details", "conversation_id", "metadata", "usage")
    return {
        **{name: response[name] for name in same},
        "output": [_item_to_beta(item) for item in response["output"]],
        "modalities": _modalities(response["output_modalities"]),
        "voice": output["voice"],
        "output_audio_format": BETA_NAMES[output["format"]["type"]],
        "max_output_tokens": response["max_output_tokens"],
        "temperature": 0.8,
    }


def _item_to_beta(item: dict[str, Any]) -> dict[str, Any]:
    return _with_content(item, _CONTENT_TO_BETA)


def _item_from_beta(item: dict[str, Any]) -> dict[str, Any]:
    return _with_content(item, _CONTENT_FROM_BETA)


def _with_content(item: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    parts = item.get("content")
    if not isinstance(parts, list):
        return item
    content = [
        part | {"type": names[part["type"]]}
        if isinstance(part, dict) and str(part.get("type")) in names
        else part
        for part in parts
    ]
    return item | {"content": content}


def _modalities(output: list[str]) -> list[str]:
    return ["audio", "text"] if output == ["audio"] else ["text"]


def _modalities_from_beta(raw: dict[str, Any]) -> dict[str, Any]:
    given = raw.get("modalities")
    if given is None:
        return {}
    return {"output_modalities": ["audio"] if given == ["text", "audio"] else given}


def _output_from_beta(raw: dict[str, Any]) -> dict[str, Any]:
    return _renamed(raw, {"voice": "voice"}) | _format_from_beta(raw, "output_audio_format")


def _format_from_beta(raw: dict[str, Any], name: str) -> dict[str, Any]:
    given = raw.get(name)
    if given is None:
        return {}
    known = isinstance(given, str) and given in _FORMATS_FROM_BETA
    return {"format": _FORMATS_FROM_BETA[given] if known else given}


def _detection_to_beta(detection: dict[str, Any] | None) -> dict[str, Any] | None:
    if detection is None:
        return None
    return {name: value for name, value in detection.items() if name != "idle_timeout_ms"}


def _some(raw: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: raw[name] for name in names if name in raw}


def _renamed(raw: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {ga: raw[beta] for beta, ga in names.items() if beta in raw}
