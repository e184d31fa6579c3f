"""Checks every request before an endpoint runs: the `Host`, the `Origin` and the API key.

A browser sends the origin of the page with each request, so requests from pages of other hosts are
recognised and refused. A page can also point its own DNS name at this machine (DNS rebinding). So
if the server needs no key, a `Host` that is not a name of this server is refused.

Runs on the event loop. Knows headers and subprotocols; does not know the endpoints.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from mosslive.server.api_errors import ApiError
from mosslive.server.keys import Bearer, KeyStore
from mosslive.server.settings import ServerSettings, is_loopback

_SUBPROTOCOL_KEY = "openai-insecure-api-key."
_SUBPROTOCOL_BETA = "openai-beta.realtime-v1"


class AccessCheck:
    def __init__(self, settings: ServerSettings, keys: KeyStore) -> None:
        self.keys = keys
        self._origins = {origin.rstrip("/").lower() for origin in settings.allowed_origins}
        names = {settings.host, *settings.allowed_hosts}
        self._hosts = {name.lower() for name in names}
        self._any_host = "*" in self._hosts or settings.no_auth

    def admit(self, headers: Mapping[str, str], subprotocols: Sequence[str] = ()) -> Bearer:
        """Returns the owner of the key. Raises `ApiError` if the host, origin or key is refused."""
        host = headers.get("host", "").lower()
        if not self.keys.needed and not self._any_host and not self._is_known(host):
            raise _forbidden(
                f"host {host[:80]!r} is not a name of this server; add it to --allowed-hosts",
                "host_not_allowed",
            )
        origin = headers.get("origin")
        if origin is not None and not self._same_or_allowed(origin, host):
            raise _forbidden(
                f"origin {origin[:80]!r} is not allowed; add it to --allowed-origins",
                "origin_not_allowed",
            )
        return self.keys.bearer(_read_key(headers, subprotocols))

    def allows_origin(self, origin: str) -> bool:
        """Whether a page of this origin may read responses (CORS)."""
        return origin.rstrip("/").lower() in self._origins

    def _is_known(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return "@" not in host and (is_loopback(name) or name in self._hosts)

    def _same_or_allowed(self, origin: str, host: str) -> bool:
        same = bool(host) and origin.lower() in (f"http://{host}", f"https://{host}")
        return same or self.allows_origin(origin)


def wants_beta(headers: Mapping[str, str], subprotocols: Sequence[str]) -> bool:
    """Whether the client asks for the beta version of the Realtime protocol."""
    return "realtime=v1" in headers.get("openai-beta", "") or _SUBPROTOCOL_BETA in subprotocols


def _read_key(headers: Mapping[str, str], subprotocols: Sequence[str]) -> str | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    for name in subprotocols:
        if name.startswith(_SUBPROTOCOL_KEY):
            return name.removeprefix(_SUBPROTOCOL_KEY)
    return None


def _forbidden(message: str, code: str) -> ApiError:
    return ApiError(message, code, kind="authentication_error", status=403)
