"""`POST /v1/audio/transcriptions`: the model writes down what is said in a recording.

There is no recogniser here: the recording is a turn, and writing it down is the reply, asked for as
the model was taught. So there are no times of words, and no formats that need them.
"""

import asyncio

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from mosslive.server.once import turn_of, write_down
from mosslive.server.realtime import fields
from mosslive.server.requests import bearer_of, house_of
from mosslive.server.sounds import read_file
from mosslive.server.wire import Refusal

_FORMATS = ("json", "text")
_MOST_FIELDS = 16  # clients send some that have no effect here: model, language, prompt


async def transcription(request: Request) -> Response:
    house, owner = house_of(request), bearer_of(request).owner
    backend = house.backend
    if backend.codec is None:
        raise Refusal("this server has no codec: sound is not understood", "no_codec")
    backend.check_mode("speech", "text")
    with house.requests.take(owner):
        async with request.form(max_files=1, max_fields=_MOST_FIELDS) as form:
            form_of = fields.choice(
                form.get("response_format") or "json", _FORMATS, "response_format"
            )
            if str(form.get("stream", "false")).lower() == "true":
                raise fields.bad("stream", True, "false")
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise Refusal("file is missing", "missing_required_parameter", "file")
            data = await file.read()
        sound = await asyncio.to_thread(read_file, data, house.settings.max_upload_s, "file")
        text = await write_down(backend, await turn_of(backend, "user", sound))
    if form_of == "text":
        return PlainTextResponse(f"{text}\n")
    seconds = round(len(sound.wave) / sound.rate_hz, 3)
    return JSONResponse({"text": text, "usage": {"type": "duration", "seconds": seconds}})
