"""The grammar of HTTP requests: every endpoint, valid and broken, and clients that leave early.

Pure functions of a random generator. A request is a dictionary: `method`, `path`, one of `json`,
`body` (text), `file` (what kind of recording), `form`; `read`: leave after so many bytes.
"""

import random
from typing import Any

from tests.fuzz.broken_events import WRONG

Request = dict[str, Any]
GETS = (
    *("/health", "/health/live", "/version", "/v1/models", "/v1/models/x/y", "/v1/voices"),
    *("/v1/realtime", "/v1/realtime/ice_servers", "/nothing", "/v1/nothing", "/%00", "/", "//"),
    *("/docs", "/docs/docs.js", "/docs/x", "/openapi.json"),
)
KINDS = ("pcm", "wav", "flac", "mp3", "opus", "aac", "nothing")


def http_request(chance: random.Random) -> Request:
    makers = (chat, chat, speech, speech, transcription, voice, secret, get, call)
    made = chance.choice(makers)(chance)
    if "json" in made and chance.random() < 0.25:
        break_field(chance, made)
    if chance.random() < 0.25:
        made["read"] = chance.choice((0, 1, 100, 5000))
    return made


def break_field(chance: random.Random, made: Request) -> None:
    body = made["json"]
    name = chance.choice(list(body))
    match chance.randrange(4):
        case 0:
            del body[name]
        case 1:
            del made["json"]
            made["body"] = chance.choice(
                ("", "null", "{", "[]", "\u0000", '{"a": NaN}', "[" * 3000)
            )
        case _:
            body[name] = chance.choice(WRONG)


def chat(chance: random.Random) -> Request:
    spoken = chance.random() < 0.4
    text = {"role": "user", "content": chance.choice(("Hello", "", "你好", "$text:300"))}
    sound = {"type": "input_audio", "input_audio": {"data": "$file:wav", "format": "wav"}}
    heard = {"role": "user", "content": [{"type": "text", "text": "And?"}, sound]}
    history = [{"role": "system", "content": "Hi."}, text, {"role": "assistant", "content": "Yes."}]
    messages = chance.choice(([text], [heard], [*history, text], [*history, heard]))
    body: Request = {"model": "any", "messages": messages, "stream": chance.random() < 0.5}
    body["max_tokens"] = chance.choice((1, 5, 20))
    if chance.random() < 0.1:
        body["messages"] = [*messages, {"role": "assistant", "audio": {"id": "audio_x"}}]
    if chance.random() < 0.1:
        body[chance.choice(("tools", "stop", "temprature"))] = chance.choice((None, [], ["x"]))
    if spoken:
        kind = "pcm16" if body["stream"] else chance.choice(KINDS)
        body |= {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": kind}}
    return {"method": "POST", "path": "/v1/chat/completions", "json": body}


def speech(chance: random.Random) -> Request:
    body = {"input": chance.choice(("Hello", "你好", "$text:200", "", "$text:5000")), "voice": "x"}
    body |= {"response_format": chance.choice(KINDS), "model": "any"}
    body["stream_format"] = chance.choice(("audio", "sse"))
    return {"method": "POST", "path": "/v1/audio/speech", "json": body}


def transcription(chance: random.Random) -> Request:
    kinds = ("json", "text", "verbose_json", "srt")
    form = {"model": "any", "response_format": chance.choice(kinds)}
    form["stream"] = chance.choice(("true", "false", "maybe"))
    file = chance.choice(("wav", "flac", "ogg", "mp3", "empty", "noise", "cut"))
    return {"method": "POST", "path": "/v1/audio/transcriptions", "form": form, "file": file}


def voice(chance: random.Random) -> Request:
    if chance.random() < 0.5:
        return {"method": "DELETE", "path": f"/v1/voices/{chance.choice(('anna', 'x', '%2e%2e'))}"}
    form = {"name": chance.choice(("anna", "", "../x", "Ü" * 300))}
    file = chance.choice(("empty", "noise", "cut"))  # a voice from a recording costs seconds
    return {"method": "POST", "path": "/v1/voices", "form": form, "file": file}


def secret(chance: random.Random) -> Request:
    names = ("client_secrets", "sessions", "transcription_sessions")
    path = f"/v1/realtime/{chance.choice(names)}"
    expires = {"anchor": "created_at", "seconds": chance.choice((10, 600, 7200, 0))}
    kind = chance.choice(("realtime", "transcription"))
    session = {"type": kind, "instructions": "Hi."}
    return {"method": "POST", "path": path, "json": {"expires_after": expires, "session": session}}


def get(chance: random.Random) -> Request:
    method = chance.choice(("GET", "GET", "GET", "HEAD", "PUT", "OPTIONS", "DELETE"))
    return {"method": method, "path": chance.choice(GETS)}


def call(chance: random.Random) -> Request:
    """Calls that cannot begin: their offer is no offer."""
    if chance.random() < 0.3:
        return {"method": "POST", "path": "/v1/realtime/calls/call_x/hangup", "body": ""}
    offer = chance.choice(("", "v=0", "v=0\r\nm=audio 9 X 0\r\n", "x" * 5000, "\u0000"))
    form = {"sdp": offer, "session": chance.choice(("{}", "[]", "{", '{"type": 1}'))}
    return {"method": "POST", "path": "/v1/realtime/calls", "form": form}
