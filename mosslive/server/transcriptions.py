"""`POST /v1/audio/transcriptions`: the model transcribes a recording, whole or as it writes.

There is no speech recogniser: a system turn asks the model to transcribe, in the words that it was
trained with, and the transcript is its text reply. Text replies have no times, so times of words
and segments, and the formats that consist of them (srt, vtt), are refused. Runs on the event loop;
the file is read on a worker thread.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from mosslive.server.api_errors import ApiError
from mosslive.server.audio_files import read_file
from mosslive.server.backend import Backend
from mosslive.server.one_shot import reply_rows, transcription_events, turn_of
from mosslive.server.realtime import fields
from mosslive.server.realtime.usage import usage_of
from mosslive.server.requests import ClosingStream, bearer_of, state_of
from mosslive.server.server_state import ServerState
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.events import ReplyDone, TextDelta
from mosslive.talk.transcript import codes_of

_FORMATS = ("json", "text", "verbose_json")
_NO_TIMES = "the model writes text without times"
_UNDETERMINED = "und"  # BCP 47: the language is not known
_MOST_FIELDS = 16  # clients also send model, language and prompt, which have no effect
_MOST_LANGUAGE = 35  # characters, as BCP 47 recommends


@dataclass(frozen=True)
class _Wanted:
    response_format: str
    stream: bool
    language: str | None


async def transcription(request: Request) -> Response:
    server_state, owner = state_of(request), bearer_of(request).owner
    backend = server_state.backend
    if backend.codec is None:
        raise ApiError(
            "this server has no codec and cannot process audio; start it with --codec", "no_codec"
        )
    backend.check_mode("speech", "text")
    with ExitStack() as stack:
        stack.enter_context(server_state.requests.take(owner, speaks=False))
        async with request.form(max_files=1, max_fields=_MOST_FIELDS) as form:
            wanted = _read(form)
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise ApiError(
                    "file is missing from the form", "missing_required_parameter", "file"
                )
            data = await file.read()
        sound = await asyncio.to_thread(read_file, data, server_state.settings.max_upload_s, "file")
        said = await turn_of(backend, "user", sound)
        written: list[HistoryTurn] = []
        events = _events(server_state, said, written, stack.pop_all())
    # Raises before the response starts, so that an error has its own status.
    first = await anext(events, ReplyDone(0, "", 0, "stop"))
    if wanted.stream:
        lines = _streamed(backend, said, written, first, events)
        return ClosingStream(lines, events, "text/event-stream")
    async with aclosing(events):
        done = first
        async for event in events:
            done = event
    seconds = round(len(sound.wave) / sound.rate_hz, 3)
    return _whole(wanted, done.text, seconds, backend.capabilities.languages)


def _whole(wanted: _Wanted, text: str, seconds: float, languages: tuple[str, ...]) -> Response:
    """`seconds`: of sound. `languages`: of the model."""
    if wanted.response_format == "text":
        return PlainTextResponse(f"{text}\n")
    document: dict[str, Any] = {"text": text, "usage": {"type": "duration", "seconds": seconds}}
    if wanted.response_format == "verbose_json":
        only = languages[0] if len(languages) == 1 else _UNDETERMINED
        language = wanted.language or only
        document |= {"task": "transcribe", "duration": seconds, "language": language}
    return JSONResponse(document)


def _read(form: FormData) -> _Wanted:
    """Raises `ApiError` for what a transcript of this model cannot have."""
    response_format = form.get("response_format") or "json"
    if response_format in ("srt", "vtt"):
        raise _refused("response_format", response_format, f"{', '.join(_FORMATS)}; {_NO_TIMES}")
    response_format = fields.choice(response_format, _FORMATS, "response_format")
    for name in ("timestamp_granularities[]", "timestamp_granularities"):
        if asked := form.getlist(name):
            raise _refused(name, asked[0], f"none; {_NO_TIMES}")
    if included := form.getlist("include[]"):
        raise _refused("include[]", included[0], "none; the model gives no log probabilities")
    raw = form.get("stream") or "false"
    stream = fields.choice(str(raw).lower(), ("true", "false"), "stream") == "true"
    if stream and response_format == "verbose_json":
        raise fields.bad("response_format", response_format, "json or text if stream is true")
    language = form.get("language") or None
    if language is not None and (not isinstance(language, str) or len(language) > _MOST_LANGUAGE):
        raise fields.bad("language", str(language), f"at most {_MOST_LANGUAGE} characters")
    return _Wanted(response_format, stream, language)


def _refused(name: str, value: object, allowed: str) -> ApiError:
    api_error = fields.bad(name, value, allowed)
    api_error.code = "unsupported_value"
    return api_error


async def _events(
    server_state: ServerState, said: HistoryTurn, written: list[HistoryTurn], slot: ExitStack
) -> AsyncGenerator[TextDelta | ReplyDone]:
    """The transcript as the model writes it. Frees `slot` when it ends."""
    backend = server_state.backend
    codes = codes_of(backend.engine, said)
    with slot:
        async with aclosing(transcription_events(backend, codes, written)) as events:
            async for event in events:
                yield event


async def _streamed(
    backend: Backend,
    said: HistoryTurn,
    written: list[HistoryTurn],
    first: TextDelta | ReplyDone,
    events: AsyncGenerator[TextDelta | ReplyDone],
) -> AsyncGenerator[str]:
    done = first
    if isinstance(first, TextDelta):
        yield _line({"type": "transcript.text.delta", "delta": first.text})
    async for event in events:
        if isinstance(event, TextDelta):
            yield _line({"type": "transcript.text.delta", "delta": event.text})
        done = event
    assert isinstance(done, ReplyDone), "the last event of a transcription"
    counted = usage_of([said], done, reply_rows(backend, written))
    names = ("input_tokens", "output_tokens", "total_tokens")
    usage = {"type": "tokens", **{name: counted[name] for name in names}}
    yield _line({"type": "transcript.text.done", "text": done.text, "usage": usage})


def _line(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event)}\n\n"
