"""`POST /v1/audio/transcriptions`: the model transcribes a recording.

There is no speech recogniser: a system turn asks the model to transcribe, in the words that it was
trained with, and the transcript is its text reply. So there are no word times, and no formats that
need them. Runs on the event loop; the file is read on a worker thread.
"""

import asyncio

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from mosslive.server.api_errors import ApiError
from mosslive.server.audio_files import read_file
from mosslive.server.one_shot import transcribe_turn, turn_of
from mosslive.server.realtime import fields
from mosslive.server.requests import bearer_of, state_of

_FORMATS = ("json", "text")
_MOST_FIELDS = 16  # clients also send model, language and prompt, which have no effect


async def transcription(request: Request) -> Response:
    server_state, owner = state_of(request), bearer_of(request).owner
    backend = server_state.backend
    if backend.codec is None:
        raise ApiError(
            "this server has no codec and cannot process audio; start it with --codec", "no_codec"
        )
    backend.check_mode("speech", "text")
    with server_state.requests.take(owner, speaks=False):
        async with request.form(max_files=1, max_fields=_MOST_FIELDS) as form:
            response_format = fields.choice(
                form.get("response_format") or "json", _FORMATS, "response_format"
            )
            if str(form.get("stream", "false")).lower() == "true":
                raise fields.bad("stream", True, "false")
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise ApiError(
                    "file is missing from the form", "missing_required_parameter", "file"
                )
            data = await file.read()
        sound = await asyncio.to_thread(read_file, data, server_state.settings.max_upload_s, "file")
        text = await transcribe_turn(backend, await turn_of(backend, "user", sound))
    if response_format == "text":
        return PlainTextResponse(f"{text}\n")
    seconds = round(len(sound.wave) / sound.rate_hz, 3)
    return JSONResponse({"text": text, "usage": {"type": "duration", "seconds": seconds}})
