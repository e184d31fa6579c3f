"""The HTTP endpoints as operations of OpenAPI 3.1. Data, for every thread.

A test compares them with the routes of `app.py`, in both directions.
"""

from typing import Any

from mosslive.server.openapi.schemas import TEXT, Schema, ref

Operation = dict[str, Any]
_BINARY: Schema = TEXT | {"format": "binary"}
_LINES = "Lines `data: {...}`, one JSON object each"


def _content(kind: str, schema: Schema) -> Schema:
    return {"content": {kind: {"schema": schema}}}


def _json(name: str) -> Schema:
    return _content("application/json", ref(name))


def _answer(text: str, **content: Schema) -> Schema:
    """`content`: JSON schema `json`, or media types with `_` for `/`."""
    made: Schema = {"description": text}
    kinds = {name.replace("_", "/", 1).replace("_", "-"): one for name, one in content.items()}
    return made | ({"content": {kind: {"schema": s} for kind, s in kinds.items()}} if kinds else {})


def _operation(
    tag: str, summary: str, answers: dict[str, Schema], text: str = "", body: Schema | None = None
) -> Operation:
    made: Operation = {"tags": [tag], "summary": summary}
    made |= {"description": text} if text else {}
    made |= {"requestBody": {"required": True} | body} if body else {}
    return made | {"responses": answers | {"default": {"$ref": "#/components/responses/Error"}}}


def _ok(name: str) -> dict[str, Schema]:
    return {"200": _answer("Success", application_json=ref(name))}


def _parameter(name: str, text: str) -> list[Schema]:
    return [{"name": name, "in": "path", "required": True, "description": text, "schema": TEXT}]


_SDP_BODY = {
    "content": {
        "application/sdp": {"schema": TEXT},
        "multipart/form-data": {"schema": ref("CallRequest")},
    }
}
_INTENT = {
    "name": "intent",
    "in": "query",
    "description": "transcription: a session that only writes down speech.",
    "schema": TEXT,
}
_SDP_ANSWER = {
    "201": _answer("The SDP answer", application_sdp=TEXT)
    | {"headers": {"location": {"schema": TEXT, "description": "The path of the call."}}}
}
_LIST_VOICES = _operation("Voices", "List the voices of the key", _ok("VoiceList"))
_SOCKET = (
    "A live session over WebSocket: the events of the OpenAI Realtime API, in both directions."
)

PATHS: dict[str, dict[str, Operation]] = {
    "/v1/chat/completions": {
        "post": _operation(
            "Replies",
            "Reply to a conversation in text or speech",
            {
                "200": _answer(
                    f"The reply. With stream: {_LINES}, then `data: [DONE]`",
                    application_json=ref("ChatCompletion"),
                    text_event_stream=TEXT,
                )
            },
            body=_json("ChatRequest"),
        )
    },
    "/v1/audio/speech": {
        "post": _operation(
            "Replies",
            "Read a text aloud",
            {
                "200": _answer(
                    "The sound, in the requested format; pcm is streamed",
                    **{
                        f"audio_{kind}": _BINARY
                        for kind in ("mpeg", "wav", "flac", "ogg", "aac", "pcm")
                    },
                    text_event_stream=TEXT,
                )
            },
            body=_json("SpeechRequest"),
        )
    },
    "/v1/audio/transcriptions": {
        "post": _operation(
            "Replies",
            "Write down a recording",
            {
                "200": _answer(
                    f"The text. With stream: {_LINES} (TranscriptionEvent)",
                    application_json=ref("Transcription"),
                    text_plain=TEXT,
                    text_event_stream=TEXT,
                )
            },
            "The model writes text without times, so times of words and segments, srt and vtt are "
            "refused.",
            _content("multipart/form-data", ref("TranscriptionRequest")),
        )
    },
    "/v1/voices": {
        "get": _LIST_VOICES,
        "post": _operation(
            "Voices",
            "Add a voice from a recording, for this key",
            {"201": _answer("The voice", application_json=ref("Voice"))},
            body=_content("multipart/form-data", ref("VoiceUpload")),
        ),
    },
    "/v1/voices/{name}": {
        "delete": _operation("Voices", "Delete an uploaded voice of this key", _ok("Deleted"))
        | {"parameters": _parameter("name", "Of an uploaded voice.")}
    },
    "/v1/audio/voices": {"get": _LIST_VOICES},
    "/v1/models": {"get": _operation("Models", "List the served model", _ok("ModelList"))},
    "/v1/models/{name}": {
        "get": _operation("Models", "The served model, under any name", _ok("Model"))
        | {"parameters": _parameter("name", "Any name.")}
    },
    "/v1/realtime": {
        "get": _operation(
            "Live sessions",
            "Open a live session (WebSocket)",
            {
                "101": _answer("The session begins"),
                "426": _answer("A plain GET", application_json=ref("Error")),
            },
            _SOCKET,
        )
        | {"parameters": [_INTENT]},
        "post": _operation(
            "Live sessions", "Start a call (WebRTC), beta path", _SDP_ANSWER, body=_SDP_BODY
        )
        | {"parameters": [_INTENT]},
    },
    "/v1/realtime/calls": {
        "post": _operation("Live sessions", "Start a call (WebRTC)", _SDP_ANSWER, body=_SDP_BODY)
        | {"parameters": [_INTENT]}
    },
    "/v1/realtime/calls/{call}/hangup": {
        "post": _operation("Live sessions", "End a call", {"200": _answer("It ends")})
        | {"parameters": _parameter("call", "The last part of the call's location.")}
    },
    "/v1/realtime/ice_servers": {
        "get": _operation("Live sessions", "ICE servers for RTCPeerConnection", _ok("IceServers"))
    },
    "/v1/realtime/client_secrets": {
        "post": _operation(
            "Live sessions",
            "Create an ephemeral key for a browser",
            _ok("Secret"),
            body=_json("SecretRequest"),
        )
    },
    "/v1/realtime/sessions": {
        "post": _operation(
            "Live sessions",
            "The same for beta clients",
            _ok("BetaSecret"),
            body=_content("application/json", {"type": "object"}),
        )
    },
    "/v1/realtime/transcription_sessions": {
        "post": _operation(
            "Live sessions",
            "The same for beta clients, of type transcription",
            _ok("BetaSecret"),
            body=_content("application/json", {"type": "object"}),
        )
    },
    "/health": {
        "get": _operation(
            "Server",
            "Readiness",
            _ok("Health") | {"503": _answer("Not ready", application_json=ref("Health"))},
        )
    },
    "/health/live": {
        "get": _operation(
            "Server",
            "Liveness",
            _ok("Health") | {"503": _answer("Restart it", application_json=ref("Health"))},
        )
    },
    "/metrics": {
        "get": _operation(
            "Server", "Metrics for Prometheus", {"200": _answer("Text", text_plain=TEXT)}
        )
    },
    "/version": {"get": _operation("Server", "Version", _ok("Version"))},
    "/openapi.json": {
        "get": _operation(
            "Server",
            "This document",
            {"200": _answer("OpenAPI 3.1", application_json={"type": "object"})},
        )
    },
    "/docs": {
        "get": _operation(
            "Server", "A page to read and try it", {"200": _answer("HTML", text_html=TEXT)}
        )
    },
}
