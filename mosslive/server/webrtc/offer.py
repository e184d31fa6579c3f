"""Reads and checks the body of a new call: an SDP offer and an optional session configuration.

Two forms of the body: plain SDP, or a multipart form with the fields `sdp` and `session`. Runs on
the event loop. Opens no connection and does not know what the fields of a configuration mean.
"""

from typing import Any

from aiortc import RTCIceServer
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from mosslive.config import refuse
from mosslive.server.api_errors import ApiError, read_json

_MOST_SDP = 1 << 16  # characters; bytes of a form field
_NEEDED = ("fingerprint", "ice-ufrag", "ice-pwd")
_MOST_SECTIONS = 2  # one of audio, one of data


async def read_call(request: Request) -> tuple[str, dict[str, Any]]:
    """The SDP, and the session's configuration; {} if the body has none."""
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
    """Checks size, sections and required attributes; aiortc checks the rest. Returns the SDP with
    normal line ends."""
    if len(sdp) > _MOST_SDP:
        raise ApiError(
            f"sdp has {len(sdp)} characters; allowed: at most {_MOST_SDP}",
            "invalid_sdp",
            "sdp",
            status=413,
        )
    sections = [line[2:].split(" ")[0] for line in sdp.splitlines() if line.startswith("m=")]
    if not sdp.startswith("v=0") or sections.count("audio") != 1:
        raise ApiError("sdp is not an offer with exactly one audio section", "invalid_sdp", "sdp")
    if len(sections) > _MOST_SECTIONS or not set(sections) <= {"audio", "application"}:
        raise ApiError(
            "sdp has other sections; allowed: one for audio, one data channel", "invalid_sdp", "sdp"
        )
    if any(f"\na={name}:" not in sdp for name in _NEEDED):
        needed = ", ".join(_NEEDED)
        raise ApiError(f"sdp lacks an attribute; needed: {needed}", "invalid_sdp", "sdp")
    # A form may remove the last line end, which parsers need.
    return "\r\n".join(sdp.splitlines()) + "\r\n"


def merge(base: dict[str, Any] | None, extra: dict[str, Any]) -> dict[str, Any]:
    """`base` with the fields of `extra`; objects are merged field by field."""
    result = dict(base or {})
    for name, value in extra.items():
        old = result.get(name)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[name] = merge(old, value) if both else value
    return result


def without_event_formats(event: Any) -> Any:
    """A client event without its audio formats. They are accepted and ignored: the track has a
    fixed format."""
    if not isinstance(event, dict):
        return event
    event = dict(event)
    for name in ("session", "response"):
        if isinstance(event.get(name), dict):
            event[name] = without_formats(event[name])
    return event


def without_formats(raw: dict[str, Any]) -> dict[str, Any]:
    """A session or response configuration without audio formats, in GA or beta names."""
    flat = ("input_audio_format", "output_audio_format")
    raw = {name: value for name, value in raw.items() if name not in flat}
    if isinstance(raw.get("audio"), dict):
        raw["audio"] = {
            side: {k: v for k, v in one.items() if k != "format"} if isinstance(one, dict) else one
            for side, one in raw["audio"].items()
        }
    return raw


def ice_server(text: str) -> RTCIceServer:
    """Parses `stun:host:port` or `turn:user:password@host:port`, optionally with
    `?transport=tcp`."""
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
        raise ApiError("the body is not UTF-8 text", "invalid_sdp") from None
