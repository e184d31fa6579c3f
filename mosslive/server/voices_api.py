"""`/v1/voices`: lists the voices of a key, adds one from a recording, deletes one.

Runs on the event loop; the recording is read on a worker thread and encoded on the codec's thread.
Does not know how voices are stored (`voice_store.py`).
"""

import asyncio
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mosslive.server.api_errors import ApiError
from mosslive.server.audio_files import read_file
from mosslive.server.requests import bearer_of, state_of
from mosslive.server.voice_store import StoredVoice

_LEAST_S = 0.5  # a shorter recording does not characterise a voice


async def listing(request: Request) -> Response:
    backend = state_of(request).backend
    voices = [_shown(one) for one in backend.voices.visible_to(bearer_of(request).owner)]
    uploads = backend.codec is not None and backend.capabilities.voices
    # Under both names: clients of OpenAI-like servers read `data` or `voices`.
    listed = {"object": "list", "data": voices, "voices": voices, "uploads": uploads}
    return JSONResponse(listed)


async def upload(request: Request) -> Response:
    server_state, bearer = state_of(request), bearer_of(request)
    bearer.require_permanent_key()
    backend, owner = server_state.backend, bearer.owner
    if backend.codec is None:
        message = "this server has no codec and cannot create voices; start it with --codec"
        raise ApiError(message, "no_codec")
    if not backend.capabilities.voices:
        raise ApiError(
            "this model has one voice; an uploaded voice would have no effect",
            "voices_not_supported",
            status=409,
        )
    with server_state.requests.take(owner, speaks=False):
        async with request.form(max_files=1, max_fields=4) as form:
            name = backend.voices.check_name(form.get("name"), owner)
            file = form.get("file")
            if not isinstance(file, UploadFile):
                message = "file is missing from the form"
                raise ApiError(message, "missing_required_parameter", "file")
            data = await file.read()
        sound = await asyncio.to_thread(read_file, data, server_state.settings.max_upload_s, "file")
        if len(sound.wave) < _LEAST_S * sound.rate_hz:
            seconds = len(sound.wave) / sound.rate_hz
            message = f"the recording has {seconds:.2f} s; allowed: {_LEAST_S} s or more"
            raise ApiError(message, "audio_too_short", "file")
        codec = backend.codec
        result = await codec.do(lambda: codec.codec.voice(sound))  # type: ignore[attr-defined]
        stored = await backend.voices.put(name, result.value, owner)
    return JSONResponse(_shown(stored), 201)


async def removal(request: Request) -> Response:
    bearer = bearer_of(request)
    bearer.require_permanent_key()
    await state_of(request).backend.voices.remove(request.path_params["name"], bearer.owner)
    return JSONResponse({"deleted": True})


def _shown(stored: StoredVoice) -> dict[str, Any]:
    return {
        "id": stored.name,
        "name": stored.name,
        "object": "voice",
        "uploaded": stored.owner is not None,
        "seconds": round(stored.voice.codes * 0.08, 2),
    }
