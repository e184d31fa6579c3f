"""Who may come in: long-lived keys, and ephemeral ones that expire.

Keys are known by their SHA-256 only, and compared in constant time, so neither a dump of memory
nor the time of an answer tells one. Knows no transport.
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
    """Who a key belongs to: `owner` tells keys apart and gives nothing away."""

    owner: str
    session: dict[str, Any] | None = None  # that an ephemeral key was made for
    ephemeral: bool = False

    def must_last(self) -> None:
        """What changes more than a session is not for keys that are handed to browsers."""
        if self.ephemeral:
            raise ApiError(
                "an ephemeral key cannot do this: it makes no keys and changes no voices",
                "ephemeral_key",
                kind="authentication_error",
                status=403,
            )


@dataclass(frozen=True)
class _Ephemeral:
    bearer: Bearer
    expires_at: float


NOBODY = Bearer("anonymous")


class KeyRing:
    def __init__(self, keys: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        self._digests = [_digest(key) for key in keys]
        self._ephemeral: dict[bytes, _Ephemeral] = {}
        self._clock = clock

    @property
    def needed(self) -> bool:
        return bool(self._digests)

    def bearer(self, key: str | None) -> Bearer:
        """Whose key it is. Without any keys everybody is nobody, and may come in."""
        if key is not None and key.startswith(EPHEMERAL):
            found = self._ephemeral.get(_digest(key))
            if found and found.expires_at > self._clock():
                return found.bearer
            if self._digests:
                raise _wrong()
            return NOBODY
        if not self._digests:
            return NOBODY
        if key is None:
            raise _wrong("an API key is needed: Authorization: Bearer KEY")
        given, owner = _digest(key), None
        for known in self._digests:  # all of them, however early one fits
            if hmac.compare_digest(given, known):
                owner = f"key-{known.hex()[:8]}"
        if owner is None:
            raise _wrong()
        return Bearer(owner)

    def lend(
        self, owner: str, seconds: int, session: dict[str, Any] | None = None
    ) -> tuple[str, int]:
        """A new ephemeral key, and when it expires (Unix time)."""
        now = self._clock()
        gone = [digest for digest, one in self._ephemeral.items() if one.expires_at <= now]
        for digest in gone:
            del self._ephemeral[digest]
        if len(self._ephemeral) >= _MOST_EPHEMERAL:
            raise ApiError("too many ephemeral keys are out", "too_many_keys", status=429)
        key = EPHEMERAL + secrets.token_urlsafe(32)
        self._ephemeral[_digest(key)] = _Ephemeral(Bearer(owner, session, True), now + seconds)
        return key, int(now + seconds)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _wrong(message: str = "the API key is wrong or has expired") -> ApiError:
    return ApiError(message, "invalid_api_key", kind="authentication_error", status=401)
