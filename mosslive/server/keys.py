"""API keys: permanent keys from the settings, and ephemeral keys that expire.

Only the SHA-256 of a key is stored, and keys are compared in constant time, so neither a memory
dump nor the response time reveals a key. Runs on the event loop. Does not know the transport.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mosslive.server.api_errors import ApiError

EPHEMERAL = "ek_"
_MOST_EPHEMERAL = 10_000


@dataclass(frozen=True)
class Bearer:
    """The authenticated client. `owner` identifies the key without revealing it."""

    owner: str
    session: dict[str, Any] | None = None  # configuration that an ephemeral key was issued with
    ephemeral: bool = False

    def require_permanent_key(self) -> None:
        """Raises `ApiError` for an ephemeral key. Browsers hold those, so they may only open
        sessions and send requests."""
        if self.ephemeral:
            raise ApiError(
                "an ephemeral key cannot create keys or change voices; use a permanent key",
                "ephemeral_key",
                kind="authentication_error",
                status=403,
            )


@dataclass(frozen=True)
class _Ephemeral:
    bearer: Bearer
    expires_at: float


ANONYMOUS = Bearer("anonymous")


class KeyStore:
    def __init__(self, keys: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        self._digests = [_digest(key) for key in keys]
        self._ephemeral: dict[bytes, _Ephemeral] = {}
        self._clock = clock

    @property
    def needed(self) -> bool:
        return bool(self._digests)

    def bearer(self, key: str | None) -> Bearer:
        """Returns the client of a key. If the server has no keys, every client is `ANONYMOUS`."""
        if key is not None and key.startswith(EPHEMERAL):
            found = self._ephemeral.get(_digest(key))
            if found and found.expires_at > self._clock():
                return found.bearer
            if self._digests:
                raise _invalid()
            return ANONYMOUS
        if not self._digests:
            return ANONYMOUS
        if key is None:
            raise _invalid("an API key is required; send the header Authorization: Bearer KEY")
        given, owner = _digest(key), None
        for known in self._digests:  # compare with all of them, for constant time
            if hmac.compare_digest(given, known):
                owner = f"key-{known.hex()[:8]}"
        if owner is None:
            raise _invalid()
        return Bearer(owner)

    def issue_ephemeral(
        self, owner: str, seconds: int, session: dict[str, Any] | None = None
    ) -> tuple[str, int]:
        """Creates an ephemeral key; returns it and its expiry (Unix time)."""
        now = self._clock()
        expired = [digest for digest, one in self._ephemeral.items() if one.expires_at <= now]
        for digest in expired:
            del self._ephemeral[digest]
        if len(self._ephemeral) >= _MOST_EPHEMERAL:
            message = (
                f"{_MOST_EPHEMERAL} ephemeral keys are valid, the maximum; wait until some expire"
            )
            raise ApiError(message, "too_many_keys", status=429)
        key = EPHEMERAL + secrets.token_urlsafe(32)
        self._ephemeral[_digest(key)] = _Ephemeral(Bearer(owner, session, True), now + seconds)
        return key, int(now + seconds)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _invalid(message: str = "the API key is wrong or has expired") -> ApiError:
    return ApiError(message, "invalid_api_key", kind="authentication_error", status=401)
