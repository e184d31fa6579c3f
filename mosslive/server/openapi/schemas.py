"""The JSON of requests and answers, as schemas of OpenAPI 3.1. Data, for every thread.

A request schema lists what the endpoint reads; `chat_options.py` says what else it accepts. Tests
validate answers of a running server against these.
"""

from typing import Any

from mosslive.server.audio_files import FILES
from mosslive.server.chat_options import NEUTRAL

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
ANY_OBJECT: Schema = {"type": "object"}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def record(required: str = "", **fields: Schema) -> Schema:
    """An object. `required`: names, separated by spaces; further fields are allowed."""
    made: Schema = {"type": "object", "properties": fields}
    return made | ({"required": required.split()} if required else {})


def many(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def one_of(*values: Any) -> Schema:
    return {"enum": list(values)}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def shown(schema: Schema, example: Any) -> Schema:
    """The schema with an example, which /docs offers to send."""
    return schema | {"examples": [example]}


def told(schema: Schema, text: str) -> Schema:
    """The schema with a description."""
    return schema | {"description": text}


_FORMATS = one_of(*FILES, "aac", "pcm", "pcm16")
_VOICE = told(TEXT, "A name of GET /v1/voices; other names mean the default voice.")
_USAGE = record(
    "input_tokens output_tokens total_tokens",
    **dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), INTEGER),
)
_MESSAGE = {
    "anyOf": [
        record(
            "role content",
            role=one_of("system", "developer", "user", "assistant"),
            content={"anyOf": [TEXT, many(ref("ContentPart"))]},
        ),
        told(
            record("role audio", role=one_of("assistant"), audio=record("id", id=TEXT)),
            "An earlier spoken reply of this server, by its id.",
        ),
    ]
}
_SAMPLING = {
    "temperature": NUMBER | {"minimum": 0, "maximum": 2},
    "top_p": NUMBER | {"minimum": 0, "maximum": 1},
    "seed": INTEGER,
    "max_completion_tokens": told(INTEGER | {"minimum": 1}, "Rows; 12.5 are a second of speech."),
    "max_tokens": INTEGER | {"minimum": 1, "deprecated": True},
}

SCHEMAS: dict[str, Schema] = {
    "Error": record(
        "error",
        error=record(
            "type code message param",
            type=one_of("invalid_request_error", "server_error", "authentication_error"),
            code=or_null(TEXT),
            message=TEXT,
            param=or_null(told(TEXT, "The field that is wrong.")),
        ),
    ),
    "ContentPart": {
        "anyOf": [
            record("type text", type=one_of("text"), text=TEXT),
            record(
                "type input_audio",
                type=one_of("input_audio"),
                input_audio=record(
                    "data", data=told(TEXT, "An audio file in base64."), format=TEXT
                ),
            ),
        ]
    },
    "ChatRequest": told(
        shown(
            record(
                "messages",
                model=told(TEXT, "Any name; one model is served."),
                messages=many(_MESSAGE) | {"minItems": 1, "maxItems": 500},
                modalities=many(one_of("text", "audio")),
                audio=record(voice=_VOICE, format=_FORMATS),
                stream=FLAG,
                stream_options=record(include_usage=FLAG),
                **_SAMPLING,
            ),
            {"messages": [{"role": "user", "content": "Hello"}], "max_completion_tokens": 50},
        ),
        f"Refused unless neutral, because this model has them not: {', '.join(NEUTRAL)}.",
    ),
    "ChatCompletion": record(
        "id object created model choices usage",
        id=TEXT,
        object=one_of("chat.completion"),
        created=INTEGER,
        model=TEXT,
        choices=many(
            record(
                "index message finish_reason",
                index=INTEGER,
                finish_reason=one_of("stop", "length"),
                message=record(
                    "role content",
                    role=one_of("assistant"),
                    content=or_null(TEXT),
                    audio=record(
                        "id data transcript expires_at",
                        id=told(TEXT, "Stands for the reply in a later request."),
                        data=told(TEXT, "The sound in base64."),
                        transcript=TEXT,
                        expires_at=INTEGER,
                    ),
                ),
            )
        ),
        usage=record(
            "prompt_tokens completion_tokens total_tokens",
            prompt_tokens=INTEGER,
            completion_tokens=INTEGER,
            total_tokens=INTEGER,
        ),
    ),
    "SpeechRequest": shown(
        record(
            "input",
            input=TEXT | {"minLength": 1, "maxLength": 4096},
            model=TEXT,
            voice=_VOICE,
            response_format=_FORMATS | {"default": "mp3"},
            stream_format=one_of("audio", "sse"),
            instructions=told(TEXT, "How to read, added to the model's own instruction."),
            speed=told(NUMBER | {"minimum": 0.25, "maximum": 4}, "Checked, and without effect."),
        ),
        {"input": "Hello there.", "voice": "default", "response_format": "wav"},
    ),
    "TranscriptionRequest": record(
        "file",
        file=told(TEXT | {"format": "binary"}, "WAV, FLAC, OGG, MP3, M4A, WebM or AAC."),
        model=TEXT,
        response_format=one_of("json", "text", "verbose_json"),
        stream=one_of("true", "false"),
        language=told(TEXT, "Shown in verbose_json; the model detects the language by itself."),
    ),
    "Transcription": record(
        "text usage",
        text=TEXT,
        usage=record("type seconds", type=one_of("duration"), seconds=NUMBER),
        duration=told(NUMBER, "Seconds; in verbose_json."),
        language=told(TEXT, "In verbose_json; und: not known."),
    ),
    "TranscriptionEvent": {
        "anyOf": [
            record("type delta", type=one_of("transcript.text.delta"), delta=TEXT),
            record("type text usage", type=one_of("transcript.text.done"), text=TEXT, usage=_USAGE),
        ]
    },
    "Voice": record(
        "id name object uploaded seconds",
        id=TEXT,
        name=TEXT,
        object=one_of("voice"),
        uploaded=told(FLAG, "By this key; otherwise it belongs to the server."),
        seconds=NUMBER,
    ),
    "VoiceList": record(
        "object data voices uploads",
        object=one_of("list"),
        data=many(ref("Voice")),
        voices=many(ref("Voice")),
        uploads=told(FLAG, "Whether voices can be added."),
    ),
    "VoiceUpload": record(
        "name file",
        name=TEXT,
        file=told(TEXT | {"format": "binary"}, "A recording of 0.5 s or more."),
    ),
    "Model": record(
        "id object created owned_by",
        id=TEXT,
        object=one_of("model"),
        created=INTEGER,
        owned_by=TEXT,
        capabilities=told(ANY_OBJECT, "What the model was trained for; absent while it loads."),
    ),
    "ModelList": record("object data", object=one_of("list"), data=many(ref("Model"))),
    "SecretRequest": shown(
        record(
            expires_after=record(
                anchor=one_of("created_at"), seconds=INTEGER | {"minimum": 10, "maximum": 7200}
            ),
            session=told(ANY_OBJECT, "The session that the key opens, of either type."),
        ),
        {"expires_after": {"anchor": "created_at", "seconds": 60}, "session": {"type": "realtime"}},
    ),
    "Secret": record(
        "value expires_at session", value=TEXT, expires_at=INTEGER, session=ANY_OBJECT
    ),
    "BetaSecret": record(
        "client_secret",
        client_secret=record("value expires_at", value=TEXT, expires_at=INTEGER),
    ),
    "CallRequest": record(
        "sdp", sdp=told(TEXT, "The SDP offer."), session=told(TEXT, "A session, as JSON.")
    ),
    "IceServers": record(
        "iceServers",
        iceServers=many(record("urls", urls=TEXT, username=TEXT, credential=TEXT)),
    ),
    "Health": record("status", status=TEXT, reason=TEXT, capacity=ANY_OBJECT),
    "Version": record("version", version=TEXT),
    "Deleted": record("deleted", deleted=one_of(True)),
}
