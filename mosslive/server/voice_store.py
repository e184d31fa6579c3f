"""The voices that can speak: those of the server, and those that users brought.

A voice somebody uploaded is seen and used only with the key it was uploaded with, and outlives the
process where there is a folder for it. Knows names and owners; what a voice is, the codec knows.
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
    owner: str | None  # None: everybody's


class VoiceStore:
    def __init__(
        self,
        default: Voice | None,
        others: Iterable[tuple[str, Voice]],
        most: int,
        folder: VoiceFolder | None = None,
    ) -> None:
        """`most`: voices that users may bring, together. `folder`: where they are kept."""
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

    def seen_by(self, owner: str) -> list[StoredVoice]:
        mine = [one for (who, _), one in self._owned.items() if who == owner]
        return [*self._shared.values(), *mine]

    def find(self, asked: object, owner: str) -> StoredVoice | None:
        """A name, or `{"id": name}`. Names we do not have mean the default: clients ask for the
        public service's voices, and must not fail for it."""
        name = asked.get("id") if isinstance(asked, dict) else asked
        if not isinstance(name, str):
            raise ApiError("voice must be a name or an object with an id", param="voice")
        return self._owned.get((owner, name)) or self._shared.get(name) or self.default

    def check_name(self, name: object, owner: str) -> str:
        """Before the work of preparing it."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ApiError("name: 1 to 64 letters, digits, spaces and _.-", param="name")
        if name in self._shared or (owner, name) in self._owned:
            raise ApiError(f"there is a voice named {name!r}", "voice_exists", "name", status=409)
        if len(self._owned) >= self._most:
            raise ApiError(f"{self._most} voices are the most", "too_many_voices", status=429)
        return name

    def fill(self, load: Callable[[Path], Voice]) -> None:
        """With what users brought before; blocking."""
        for owner, name, voice in self._folder.read(load) if self._folder else ():
            try:
                self._put(name, voice, owner)
            except ApiError as api_error:
                _log.warning("a voice is left out: %s", api_error)

    async def put(self, name: str, voice: Voice, owner: str) -> StoredVoice:
        stored = self._put(name, voice, owner)
        if self._folder:
            try:
                await asyncio.to_thread(self._folder.write, owner, name, voice)
            except MossliveError as error:
                del self._owned[owner, name]
                _log.error("a voice cannot be kept: %s", error)
                raise ApiError(
                    "the voice cannot be kept", "voice_not_kept", kind="server_error", status=507
                ) from None
        return stored

    async def remove(self, name: str, owner: str) -> None:
        if self._owned.pop((owner, name), None) is None:
            raise ApiError(f"you have no voice named {name[:80]!r}", "voice_not_found", status=404)
        if self._folder:
            await asyncio.to_thread(self._folder.remove, owner, name)

    def _put(self, name: str, voice: Voice, owner: str) -> StoredVoice:
        self.check_name(name, owner)
        stored = self._owned[owner, name] = StoredVoice(name, voice, owner)
        return stored
