"""What a caller brings: an offer, and perhaps a session's configuration. Reading and checking only.

Both forms of the body: bare SDP, or a form with the parts `sdp` and `session`.
"""

from typing import Any

from aiortc import RTCIceServer
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from mosslive.config import refuse
from mosslive.server.api_errors import ApiError, read_json

_MOST_SDP = 1 << 16  # bytes
_NEEDED = ("fingerprint", "ice-ufrag", "ice-pwd")
_MOST_SECTIONS = 2  # one of sound, one of data


async def read_call(request: Request) -> tuple[str, dict[str, Any]]:
    """The SDP, and the session's configuration, {} if there is none."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        async with request.form(max_files=2, max_fields=4, max_part_size=_MOST_SDP) as form:
            offer = await _part(form, "sdp")
            session = await _part(form, "session")
        return check_offer(offer or ""), _session(session)
    if kind != "application/sdp":
        raise ApiError(
            f"content-type is {kind[:80]!r}; allowed: application/sdp, multipart/form-data",
            "unsupported_media_type",
            status=415,
        )
    return check_offer(_text(await request.body())), {}


def check_offer(sdp: str) -> str:
    """Sound one time, and perhaps data. What an offer says otherwise is for the connection."""
    if len(sdp) > _MOST_SDP:
        raise ApiError(f"sdp has {_MOST_SDP} bytes at most", "invalid_sdp", "sdp", status=413)
    sections = [line[2:].split(" ")[0] for line in sdp.splitlines() if line.startswith("m=")]
    if not sdp.startswith("v=0") or sections.count("audio") != 1:
        raise ApiError("sdp must be an offer with one audio section", "invalid_sdp", "sdp")
    if len(sections) > _MOST_SECTIONS or not set(sections) <= {"audio", "application"}:
        raise ApiError("sdp may offer sound and a data channel only", "invalid_sdp", "sdp")
    if any(f"\na={name}:" not in sdp for name in _NEEDED):
        needed = ", ".join(_NEEDED)
        raise ApiError(f"sdp must be an offer with {needed}", "invalid_sdp", "sdp")
    # An offer from a form may have lost its last line end, which parsers want.
    return "\r\n".join(sdp.splitlines()) + "\r\n"


def over(base: dict[str, Any] | None, extra: dict[str, Any]) -> dict[str, Any]:
    """`base` with the fields of `extra`, objects merged."""
    result = dict(base or {})
    for name, value in extra.items():
        old = result.get(name)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[name] = over(old, value) if both else value
    return result


def own_formats(event: Any) -> Any:
    """An event without its audio formats: a track has its own. They are accepted, and not in
    force."""
    if not isinstance(event, dict):
        return event
    event = dict(event)
    for name in ("session", "response"):
        if isinstance(event.get(name), dict):
            event[name] = without_formats(event[name])
    return event


def without_formats(raw: dict[str, Any]) -> dict[str, Any]:
    """For a session or a response, in GA or beta names."""
    flat = ("input_audio_format", "output_audio_format")
    raw = {name: value for name, value in raw.items() if name not in flat}
    if isinstance(raw.get("audio"), dict):
        raw["audio"] = {
            side: {k: v for k, v in one.items() if k != "format"} if isinstance(one, dict) else one
            for side, one in raw["audio"].items()
        }
    return raw


def ice_server(text: str) -> RTCIceServer:
    """`stun:host:port`, or `turn:user:password@host:port`, with `?transport=tcp` if need be."""
    scheme, _, rest = text.partition(":")
    account, at, address = rest.rpartition("@")
    if scheme not in ("stun", "stuns", "turn", "turns") or not address:
        raise refuse("ice_servers", text, "stun:HOST:PORT or turn:USER:PASSWORD@HOST:PORT")
    if not at:
        return RTCIceServer(f"{scheme}:{address}")
    user, _, password = account.partition(":")
    return RTCIceServer(f"{scheme}:{address}", user, password)


def _session(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    raw = read_json(text, "session")
    if not isinstance(raw, dict):
        raise ApiError("the session is not a JSON object", "invalid_json", "session")
    return raw


async def _part(form: FormData, name: str) -> str | None:
    part = form.get(name)
    return _text(await part.read()) if isinstance(part, UploadFile) else part


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ApiError("the body is not text", "invalid_sdp") from None
