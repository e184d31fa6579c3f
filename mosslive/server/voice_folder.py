"""Uploaded voices on disk: OWNER/NAME.voice, each written whole or not at all.

What lies there and is not a voice of ours is left alone and said in the log: one bad file must not
keep a server from starting. Knows files; who may use a voice, the shelf knows.
"""

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mosslive.codec.voice import Voice
from mosslive.errors import MossliveError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,63}")  # of a voice: safe as a file's too
_OWNER = re.compile(r"anonymous|key-[0-9a-f]{8}")
_END = ".voice"
_MOST_BYTES = 64 << 20  # minutes of a recording are a few
_log = logging.getLogger("mosslive.voices")


class VoiceFolder:
    def __init__(self, folder: Path) -> None:
        """Made if it is not there; others have no business in it."""
        self._folder = folder
        self._make(folder)

    def read(self, load: Callable[[Path], Voice]) -> Iterator[tuple[str, str, Voice]]:
        """Owner, name, voice; in the order of their names."""
        for path in sorted(self._folder.glob(f"*/*{_END}")):
            owner, name = path.parent.name, path.name.removesuffix(_END)
            if not _OWNER.fullmatch(owner) or not NAME.fullmatch(name):
                continue
            try:
                if path.stat().st_size > _MOST_BYTES:
                    raise MossliveError(f"{path}: longer than {_MOST_BYTES} bytes")
                yield owner, name, load(path)
            except (MossliveError, OSError) as error:
                _log.warning("a voice is left out: %s", error)

    def write(self, owner: str, name: str, voice: Voice) -> None:
        path = self._path(owner, name)
        self._make(path.parent)
        voice.save(path)

    def remove(self, owner: str, name: str) -> None:
        self._path(owner, name).unlink(missing_ok=True)

    def _path(self, owner: str, name: str) -> Path:
        assert _OWNER.fullmatch(owner), "made by the key ring"
        assert NAME.fullmatch(name), "checked by the shelf"
        return self._folder / owner / f"{name}{_END}"

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MossliveError(f"voices_dir: {folder} cannot be made: {error}") from None
