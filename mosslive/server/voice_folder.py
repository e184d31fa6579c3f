"""Uploaded voices on disk: `OWNER/NAME.voice`; each file is written completely or not at all.

Unreadable voice files are skipped with a warning, so one bad file does not prevent a start. All
functions block; they run on the load thread or a worker thread. Knows files and names; does not
know who may use a voice (`voice_store.py`).
"""

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mosslive.codec.voice import Voice
from mosslive.errors import MossliveError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,63}")  # of a voice; also safe as a file name
_OWNER = re.compile(r"anonymous|key-[0-9a-f]{8}")
_END = ".voice"
_MOST_BYTES = 64 << 20  # a voice from minutes of recording has a few MiB
_log = logging.getLogger("mosslive.voices")


class VoiceFolder:
    def __init__(self, folder: Path) -> None:
        """Creates the folder if needed, readable by its owner only (0700)."""
        self._folder = folder
        self._create(folder)

    def read(self, load: Callable[[Path], Voice]) -> Iterator[tuple[str, str, Voice]]:
        """Yields (owner, name, voice), sorted by path."""
        for path in sorted(self._folder.glob(f"*/*{_END}")):
            owner, name = path.parent.name, path.name.removesuffix(_END)
            if not _OWNER.fullmatch(owner) or not NAME.fullmatch(name):
                continue
            try:
                if path.stat().st_size > _MOST_BYTES:
                    raise MossliveError(f"{path} is longer than {_MOST_BYTES} bytes, the maximum")
                yield owner, name, load(path)
            except (MossliveError, OSError) as error:
                _log.warning("skipped an uploaded voice: %s", error)

    def write(self, owner: str, name: str, voice: Voice) -> None:
        path = self._path(owner, name)
        self._create(path.parent)
        voice.save(path)

    def remove(self, owner: str, name: str) -> None:
        self._path(owner, name).unlink(missing_ok=True)

    def _path(self, owner: str, name: str) -> Path:
        assert _OWNER.fullmatch(owner), "owners come from the key store"
        assert NAME.fullmatch(name), "the voice store checks names"
        return self._folder / owner / f"{name}{_END}"

    def _create(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MossliveError(f"voices_dir: cannot create {folder}: {error}") from None
