"""The voices of the server and those that clients uploaded.

Only the key that uploaded a voice can list, use and delete it. Uploaded voices survive a restart if
there is a folder for them. Used on the event loop (`fill` runs on the load thread). Knows names and
owners; does not know what a voice contains.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from mosslive.codec.voice import Voice
from mosslive.errors import MossliveError
from mosslive.server.api_errors import ApiError
from mosslive.server.voice_folder import NAME, VoiceFolder

_log = logging.getLogger("mosslive.voices")


@dataclass(frozen=True)
class StoredVoice:
    name: str
    voice: Voice
    owner: str | None  # None: shared by all keys


class VoiceStore:
    def __init__(
        self,
        default: Voice | None,
        others: Iterable[tuple[str, Voice]],
        most: int,
        folder: VoiceFolder | None = None,
    ) -> None:
        """`most`: uploaded voices of all keys together. `folder`: where they are stored."""
        self._most, self._folder = most, folder
        self._shared: dict[str, StoredVoice] = {}
        self._owned: dict[tuple[str, str], StoredVoice] = {}
        if default:
            name = default.name or "default"
            self._shared[name] = StoredVoice(name, default, None)
        for name, voice in others:
            self._shared.setdefault(name, StoredVoice(name, voice, None))

    @property
    def default(self) -> StoredVoice | None:
        return next(iter(self._shared.values()), None)

    def visible_to(self, owner: str) -> list[StoredVoice]:
        owned = [one for (of, _), one in self._owned.items() if of == owner]
        return [*self._shared.values(), *owned]

    def find(self, requested: object, owner: str) -> StoredVoice | None:
        """`requested`: a name, or `{"id": name}`. An unknown name means the default: clients ask
        for voices of the public service and must not fail."""
        name = requested.get("id") if isinstance(requested, dict) else requested
        if not isinstance(name, str):
            message = f"voice is {str(requested)[:80]!r}; allowed: a name, or an object with an id"
            raise ApiError(message, param="voice")
        return self._owned.get((owner, name)) or self._shared.get(name) or self.default

    def check_name(self, name: object, owner: str) -> str:
        """Raises `ApiError` if a voice of this name cannot be added."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            message = (
                f"name is {str(name)[:80]!r}; allowed: 1 to 64 letters, digits, spaces and _.-"
            )
            raise ApiError(message, param="name")
        if name in self._shared or (owner, name) in self._owned:
            message = f"a voice named {name!r} exists; choose another name"
            raise ApiError(message, "voice_exists", "name", status=409)
        if len(self._owned) >= self._most:
            message = f"the server has {self._most} uploaded voices, the maximum; delete one"
            raise ApiError(message, "too_many_voices", status=429)
        return name

    def fill(self, load: Callable[[Path], Voice]) -> None:
        """Loads the voices that were uploaded before. Blocks."""
        for owner, name, voice in self._folder.read(load) if self._folder else ():
            try:
                self._put(name, voice, owner)
            except ApiError as api_error:
                _log.warning("skipped an uploaded voice: %s", api_error)

    async def put(self, name: str, voice: Voice, owner: str) -> StoredVoice:
        """Adds an uploaded voice. Raises `ApiError` if the name or the disk does not allow it."""
        stored = self._put(name, voice, owner)
        if self._folder:
            try:
                await asyncio.to_thread(self._folder.write, owner, name, voice)
            except (MossliveError, OSError) as error:
                del self._owned[owner, name]
                _log.error("cannot store an uploaded voice: %s", error)
                message = "the server cannot store the voice"
                raise _disk_failed(message, "voice_not_kept") from None
        return stored

    async def remove(self, name: str, owner: str) -> None:
        """Raises `ApiError`, and keeps the voice, if its file cannot be deleted: it would be back
        after the next start."""
        stored = self._owned.pop((owner, name), None)
        if stored is None:
            raise ApiError(
                f"this key has no voice named {name[:80]!r}", "voice_not_found", status=404
            )
        if self._folder:
            try:
                await asyncio.to_thread(self._folder.remove, owner, name)
            except OSError as error:
                self._owned.setdefault((owner, name), stored)
                _log.error("cannot delete an uploaded voice: %s", error)
                message = "the server cannot delete the voice"
                raise _disk_failed(message, "voice_not_deleted") from None

    def _put(self, name: str, voice: Voice, owner: str) -> StoredVoice:
        self.check_name(name, owner)
        stored = self._owned[owner, name] = StoredVoice(name, voice, owner)
        return stored


def _disk_failed(message: str, code: str) -> ApiError:
    return ApiError(message, code, kind="server_error", status=507)
