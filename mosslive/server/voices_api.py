"""`/v1/voices`: the voices a key can use; a recording becomes a new one."""

import asyncio
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mosslive.server.api_errors import ApiError
from mosslive.server.audio_files import read_file
from mosslive.server.requests import bearer_of, state_of
from mosslive.server.voice_store import StoredVoice

_LEAST_S = 0.5  # shorter says nothing of a voice


async def listing(request: Request) -> Response:
    backend = state_of(request).backend
    voices = [_shown(one) for one in backend.voices.seen_by(bearer_of(request).owner)]
    uploads = backend.codec is not None and backend.taught.voices
    # Under both names: clients of this and of neighbouring servers look in different places.
    listed = {"object": "list", "data": voices, "voices": voices, "uploads": uploads}
    return JSONResponse(listed)


async def upload(request: Request) -> Response:
    server_state, bearer = state_of(request), bearer_of(request)
    bearer.must_last()
    backend, owner = server_state.backend, bearer.owner
    if backend.codec is None:
        raise ApiError("this server has no codec: voices cannot be made", "no_codec")
    if not backend.taught.voices:
        raise ApiError(
            "this model speaks with one voice: an uploaded voice would have no effect",
            "voices_not_supported",
            status=409,
        )
    with server_state.requests.take(owner):
        async with request.form(max_files=1, max_fields=4) as form:
            name = backend.voices.check_name(form.get("name"), owner)
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise ApiError("file is missing", "missing_required_parameter", "file")
            data = await file.read()
        sound = await asyncio.to_thread(read_file, data, server_state.settings.max_upload_s, "file")
        if len(sound.wave) < _LEAST_S * sound.rate_hz:
            raise ApiError(f"a voice needs {_LEAST_S} s or more", "audio_too_short", "file")
        codec = backend.codec
        made = await codec.do(lambda: codec.codec.voice(sound))  # type: ignore[attr-defined]
        stored = await backend.voices.put(name, made.value, owner)
    return JSONResponse(_shown(stored), 201)


async def removal(request: Request) -> Response:
    bearer = bearer_of(request)
    bearer.must_last()
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
