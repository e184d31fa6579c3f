"""Uploaded voices: created from recordings, stored, deleted."""

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from mosslive import MossliveError
from mosslive.server.voice_folder import VoiceFolder
from tests.server.auth import KEY, OTHER
from tests.server.rig import WAIT_S, Parts, Served, run, serving, wav


def calling(served: Served, key: str | None = None) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(base_url=served.http, timeout=WAIT_S, headers=headers)


async def upload(http: httpx.AsyncClient, name: str) -> httpx.Response:
    files = {"file": ("x.wav", wav(1.0))}
    return await http.post("/v1/voices", files=files, data={"name": name})


async def names(http: httpx.AsyncClient) -> list[str]:
    return [one["id"] for one in (await http.get("/v1/voices")).json()["data"]]


def test_voices(parts: Parts) -> None:
    """An uploaded recording becomes a voice that speaks, its name cannot be used twice, and a
    deleted voice is gone."""

    async def test() -> None:
        async with serving(parts) as served, calling(served) as http:
            upload = {"files": {"file": ("anna.wav", wav(1.0))}, "data": {"name": "anna"}}
            made = await http.post("/v1/voices", **upload)  # type: ignore[arg-type]
            assert made.status_code == 201, made.text
            again = await http.post("/v1/voices", **upload)  # type: ignore[arg-type]
            assert again.json()["error"]["code"] == "voice_exists"
            names = [one["id"] for one in (await http.get("/v1/voices")).json()["data"]]
            assert names == ["default", "anna"]
            asked = {"input": "Hi", "response_format": "pcm"}
            sounds = [
                (await http.post("/v1/audio/speech", json=asked | {"voice": name})).content
                for name in ("default", "anna", "unknown name")
            ]
            assert sounds[0] == sounds[2] != sounds[1]
            assert (await http.delete("/v1/voices/anna")).status_code == 200
            assert (await http.delete("/v1/voices/anna")).status_code == 404
            for name, file in (("", wav()), ("../x", wav()), ("short", wav(0.1)), ("no", b"x")):
                files = {"file": ("x.wav", file)}
                bad = await http.post("/v1/voices", files=files, data={"name": name})
                assert bad.status_code == 400

    run(test())


def test_voices_survive_a_restart(parts: Parts, tmp_path: Path) -> None:
    """With a voices folder an uploaded voice is there after a restart, for its own key only, and
    sounds the same; a deleted one is not."""
    kept: dict[str, Any] = {"voices_dir": tmp_path / "voices", "api_keys": (KEY, OTHER)}
    asked = {"input": "Hi", "response_format": "pcm", "voice": "anna"}
    sounds: list[bytes] = []

    async def test() -> None:
        async with serving(parts, **kept) as served, calling(served, KEY) as http:
            for name in ("anna", "ben"):
                assert (await upload(http, name)).status_code == 201
            assert (await http.delete("/v1/voices/ben")).status_code == 200
            sounds.append((await http.post("/v1/audio/speech", json=asked)).content)
        async with serving(parts, **kept) as served, calling(served, KEY) as http:
            assert await names(http) == ["default", "anna"]
            sounds.append((await http.post("/v1/audio/speech", json=asked)).content)
            async with calling(served, OTHER) as other:
                assert await names(other) == ["default"]
        assert sounds[0] == sounds[1]

    run(test())
    (path,) = (path for path in (tmp_path / "voices").rglob("*") if path.is_file())
    assert path.name == "anna.voice"
    assert KEY not in str(path)
    assert path.parent.stat().st_mode & 0o077 == 0


def test_bad_voice_files_are_skipped(
    parts: Parts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged voice file, one of another codec and one beyond the limit are skipped with a log
    line, and the server starts."""
    mine = tmp_path / "anonymous"
    mine.mkdir()
    parts.voice.save(mine / "anna.voice")
    parts.voice.save(mine / "ben.voice")
    (mine / "broken.voice").write_bytes(b"x" * 100)
    (mine / ".hidden.voice").write_bytes(b"x")
    (tmp_path / "stranger").mkdir()
    parts.voice.save(tmp_path / "stranger" / "carl.voice")

    async def test() -> None:
        limits: dict[str, Any] = {"voices_dir": tmp_path, "max_voices": 1}
        async with serving(parts, **limits) as served, calling(served) as http:
            assert await names(http) == ["default", "anna"]

    with caplog.at_level(logging.WARNING, "mosslive.voices"):
        run(test())
    messages = [record.getMessage() for record in caplog.records]
    assert len([line for line in messages if "skipped" in line]) == 2
    assert "broken.voice" in "".join(messages)


def test_a_folder_that_cannot_be_written(parts: Parts, tmp_path: Path) -> None:
    """A voice that cannot be saved is not added, and a folder that cannot be created gives an
    error."""
    folder = tmp_path / "voices"

    async def test() -> None:
        async with serving(parts, voices_dir=folder) as served, calling(served) as http:
            folder.rmdir()
            folder.write_text("in the way")
            answer = await upload(http, "anna")
            assert (answer.status_code, answer.json()["error"]["code"]) == (507, "voice_not_kept")
            assert await names(http) == ["default"]

    run(test())
    with pytest.raises(MossliveError, match="voices_dir"):
        VoiceFolder(folder)
