"""A small Hugging Face hub for tests: the endpoints that `huggingface_hub` asks when it downloads.

    GET  /api/models/{owner}/{name}/revision/{revision}   commit and files
    GET  /api/models/{owner}/{name}/tree/{commit}         sizes and hashes
    HEAD, GET /{owner}/{name}/resolve/{revision}/{file}   ETag, X-Repo-Commit, ranges

Files of 4 KiB or more are stated by their SHA-256, as the hub does for LFS, smaller ones by git's
hash. Faults are set by attributes. Runs on threads of its own, in the process of the test.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import unquote

LARGE_BYTES = 4096


@dataclass
class Repo:
    """Files by commit, and names of commits."""

    commits: dict[str, Path] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    token: str | None = None  # needed to read it: gated

    def add(self, revision: str, folder: Path) -> str:
        commit = hashlib.sha1(f"{folder}{revision}".encode()).hexdigest()
        self.commits[commit], self.refs[revision] = folder, commit
        return commit

    def find(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.refs.get(revision)


@dataclass
class Hub:
    repos: dict[str, Repo] = field(default_factory=dict)
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, range
    down: bool = False  # answers 503
    cut: dict[str, int] = field(default_factory=dict)  # file → bytes before the connection breaks
    short: set[str] = field(default_factory=set)  # ends after half of the stated length
    wrong: set[str] = field(default_factory=set)  # right length, wrong bytes
    slow: str | None = None  # this file comes byte by byte until `released`
    begun: Event = field(default_factory=Event)  # the slow file
    released: Event = field(default_factory=Event)
    url: str = ""

    def add(self, name: str, folder: Path, revision: str = "main") -> str:
        """Returns the commit."""
        return self.repos.setdefault(name, Repo()).add(revision, folder)

    def fetched(self) -> list[str]:
        """File names of all GET requests for contents, in order."""
        found = (re.search("/resolve/[^/]+/(.*)", p) for m, p, _ in self.asked if m == "GET")
        return [match[1] for match in found if match]


def _files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def _hashes(content: bytes) -> tuple[str, str | None]:
    """(git's hash, SHA-256 of a large file)"""
    git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return git, hashlib.sha256(content).hexdigest() if len(content) >= LARGE_BYTES else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._handle()

    def do_GET(self) -> None:
        self._handle()

    def _handle(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.hub.asked.append((self.command, path, self.headers.get("Range")))
        if self.hub.down:
            return self._send(503, b"")
        api = re.fullmatch("/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)/?", path)
        file = re.fullmatch("/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        found = api or file
        if not found:
            return self._send(404, b"")
        repo = self.hub.repos.get(found[1])
        if repo is None:
            return self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        if repo.token and self.headers.get("Authorization") != f"Bearer {repo.token}":
            return self._send(401, b"{}", {"X-Error-Code": "GatedRepo"})
        commit = repo.find(found[3] if api else found[2])
        if commit is None:
            return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        if api:
            return self._send_api(found[1], found[2], commit, repo.commits[commit])
        return self._send_file(repo.commits[commit], commit, found[3])

    def _send_api(self, name: str, kind: str, commit: str, folder: Path) -> None:
        if kind == "revision":
            siblings = [{"rfilename": file} for file in _files(folder)]
            document: Any = {"id": name, "modelId": name, "sha": commit, "siblings": siblings}
            document |= {
                "private": False,
                "disabled": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
            }
        else:
            document = []
            for file in _files(folder):
                content = (folder / file).read_bytes()
                git, sha256 = _hashes(content)
                entry = {"type": "file", "path": file, "size": len(content), "oid": git}
                if sha256:
                    entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 130}
                document.append(entry)
        self._send(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _send_file(self, folder: Path, commit: str, file: str) -> None:
        if file not in _files(folder):
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        content = (folder / file).read_bytes()
        git, sha256 = _hashes(content)
        headers = {"X-Repo-Commit": commit, "ETag": f'"{sha256 or git}"', "Accept-Ranges": "bytes"}
        if file in self.hub.wrong:
            content = bytes(len(content))
        start, status, total = 0, 200, len(content)
        if asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or ""):
            start, status = int(asked[1]), 206
            headers["Content-Range"] = f"bytes {start}-{total - 1}/{total}"
        if file in self.hub.short and self.command == "GET":
            content = content[: total // 2]
        if file == self.hub.slow and self.command == "GET":
            return self._send_slowly(content, headers)
        limit = self.hub.cut.pop(file, None) if self.command == "GET" else None
        return self._send(status, content[start:], headers, limit)

    def _send_slowly(self, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        sent = 0
        with suppress(ConnectionError):
            while sent < len(content):
                piece = len(content) if self.hub.released.wait(0.02) else 64
                self.wfile.write(content[sent : sent + piece])
                sent += piece
                self.hub.begun.set()

    def _send(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        limit: int | None = None,
    ) -> None:
        """`limit`: the connection breaks after this many bytes of the body."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(ConnectionError):
                self.wfile.write(body if limit is None else body[:limit])
        if limit is not None:
            self.close_connection = True


@contextmanager
def serving_hub() -> Iterator[Hub]:
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
