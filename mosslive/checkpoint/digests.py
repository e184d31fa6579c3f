"""SHA-256 of files, remembered as long as a file keeps its size, its time and its inode.

A model of 18 GB takes seconds to minutes to hash, so a digest is computed once per file and kept in
one JSON file. The memory is only a saving: a record that is lost, or was overwritten by another
process at the same time, is computed again. Knows nothing of what the files contain.
"""

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from mosslive.checkpoint.engine_folder import hash_files
from mosslive.checkpoint.progress import Progress

_FILE = "digests.json"
_MOST = 10_000  # records; the oldest are dropped


class Digests:
    def __init__(self, folder: Path) -> None:
        """`folder`: keeps the records in `digests.json` there; it need not exist yet."""
        self._path = folder / _FILE

    def missing(self, paths: list[Path]) -> int:
        """Bytes that `of` would read."""
        known = self._read()
        return sum(p.stat().st_size for p in paths if _stamp(p) != known.get(_key(p), [None])[:-1])

    def of(self, paths: list[Path], progress: Progress = lambda _: None) -> dict[Path, str]:
        """SHA-256 by path, in hexadecimal. `progress`: gets the bytes read."""
        known = self._read()
        stamps = {path: _stamp(path) for path in paths}  # before reading: a later change shows
        found = {
            path: str(record[-1])
            for path, stamp in stamps.items()
            if (record := known.get(_key(path), [None]))[:-1] == stamp
        }
        new = [path for path in paths if path not in found]
        for folder in dict.fromkeys(path.parent for path in new):  # names are unique within one
            named = {path.name: path for path in new if path.parent == folder}
            for name, hashed in hash_files(list(named.values()), progress).items():
                found[named[name]] = hashed.sha256
        if new:
            known |= {_key(path): [*stamps[path], found[path]] for path in new}
            self._write(known)
        return {path: found[path] for path in paths}

    def _read(self) -> dict[str, list[object]]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _write(self, records: dict[str, list[object]]) -> None:
        kept = dict(list(records.items())[-_MOST:])
        with suppress(OSError):  # a read-only or full disk costs time at the next start, no more
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{_FILE}-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(kept, file)
                os.replace(name, self._path)
            finally:
                Path(name).unlink(missing_ok=True)


def _key(path: Path) -> str:
    """Links and relative names of one file share its record."""
    return os.path.realpath(path)


def _stamp(path: Path) -> list[object]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]
