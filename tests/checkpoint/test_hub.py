"""Models by name, against a small hub on this machine: no test needs a network."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.checkpoint import hub as hub_module
from mosslive.checkpoint import take_inventory
from mosslive.checkpoint.hub import local_folder, repo_name
from mosslive.checkpoint.hub_errors import Damaged, DownloadFailed, NoSuchModel
from mosslive.checkpoint.progress import silent
from mosslive.config.published import MOSS_SPEECH
from tests.hub_server import LARGE_BYTES, Hub

NAME = MOSS_SPEECH
SHARD = "model-00002-of-00004.safetensors"


def cached(tmp_path: Path) -> list[Path]:
    """Contents in the cache, unfinished ones included."""
    return sorted((tmp_path / "hf").glob("*/blobs/*"))


def test_a_repo_id_is_downloaded_once(hub: Hub, tmp_path: Path) -> None:
    """A repo id gives a usable folder with the files that are needed and no others; the second
    time nothing is fetched."""
    folder = local_folder(NAME)
    take_inventory(folder).require_valid()
    wanted = {p.name for p in (tmp_path / "published").iterdir()} - {
        "README.md",
        "pytorch_model.bin",
    }
    assert {path.name for path in folder.iterdir()} == set(hub.fetched()) == wanted
    hub.asked.clear()
    assert local_folder(Path(NAME)) == folder
    assert hub.fetched() == []


def test_revisions(hub: Hub, tmp_path: Path) -> None:
    """`@` chooses a branch, a tag or a commit, each with its own folder."""
    older = shutil.copytree(tmp_path / "published", tmp_path / "older")
    (older / "generation_config.json").write_text('{"temperature": 0.5}')
    commit = hub.add(NAME, older, "v1")
    tagged, newest = local_folder(f"{NAME}@v1"), local_folder(NAME)
    assert local_folder(f"{NAME}@{commit}") == tagged != newest
    assert (tagged / "generation_config.json").read_text() == '{"temperature": 0.5}'
    assert take_inventory(newest).valid
    with pytest.raises(NoSuchModel, match=rf"No such folder: {NAME}@v9 .*has no revision 'v9'"):
        local_folder(f"{NAME}@v9")


def test_a_folder_wins(hub: Hub, tmp_path: Path) -> None:
    """A folder that exists is used, even if its name is that of a repo."""
    (tmp_path / NAME).mkdir(parents=True)
    assert local_folder(NAME) == Path(NAME)
    assert hub.asked == []


@pytest.mark.parametrize(
    "name", ["bundled", "nowhere", "./a/b", "/a/b", "../b", "a/b/c", "a/b@", "-a/b", "a b/c", ""]
)
def test_other_names_are_paths(hub: Hub, name: str) -> None:
    """A name without the form of a repo id is returned as a path; the hub is not asked."""
    assert local_folder(name) == Path(name)
    assert hub.asked == []


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["a", "fnlp", "Moss2"]), st.text(min_size=1, max_size=9))
def test_names_round_trip(part: str, revision: str) -> None:
    """Every name that is taken for a repo id is written as it was read."""
    for text in (f"{part}/{part}.x", f"{part}/{part}@{revision}"):
        found = repo_name(text)
        assert found is None or str(found) == text
    assert repo_name(f"{part}/{part}") == hub_module.RepoName(f"{part}/{part}")


def test_a_broken_connection_is_resumed(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a connection breaks, the rest of the file is fetched, not the whole."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500)
    hub.cut[SHARD] = 1000
    take_inventory(local_folder(NAME)).require_valid()
    ranges = [asked for method, path, asked in hub.asked if method == "GET" and SHARD in path]
    assert ranges == [None, "bytes=1000-"]


def test_a_truncated_file_is_refused(hub: Hub, tmp_path: Path) -> None:
    """A file that ends too early is an error and is not kept; the next call fetches what is
    missing."""
    hub.short.add(SHARD)
    with pytest.raises(DownloadFailed, match=r"broke off.*size"):
        local_folder(NAME)
    sizes = {path.stat().st_size for path in cached(tmp_path)}
    assert (tmp_path / "published" / SHARD).stat().st_size // 2 not in sizes
    hub.short.clear()
    hub.asked.clear()
    take_inventory(local_folder(NAME)).require_valid()
    assert SHARD in hub.fetched()
    assert "config.json" not in hub.fetched()


@pytest.mark.parametrize("file", [SHARD, "config.json"])
def test_wrong_bytes_are_refused(hub: Hub, tmp_path: Path, file: str) -> None:
    """A file whose hash is not the stated one is an error and is removed; the next call fetches
    that file alone."""
    hub.wrong.add(file)
    with pytest.raises(Damaged, match=rf"the hash of {file} differs .* Run the command again"):
        local_folder(NAME)
    assert not list((tmp_path / "hf").rglob(file))
    hub.wrong.clear()
    hub.asked.clear()
    take_inventory(local_folder(NAME)).require_valid()
    assert hub.fetched() == [file]


def test_hashes_are_computed_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is hashed when it is new or changed, and not at every start."""
    read: list[int] = []

    def stage(label: str, total: int):  # type: ignore[no-untyped-def]
        read.append(total)
        return silent(label, total)

    folder = local_folder(NAME, stage)
    local_folder(NAME, stage)
    weights = sum(p.stat().st_size for p in folder.iterdir() if p.stat().st_size >= LARGE_BYTES)
    assert read == [weights, 0]
    blob = (folder / SHARD).resolve()
    blob.write_bytes(bytes(blob.stat().st_size))
    with pytest.raises(Damaged, match=SHARD):
        local_folder(NAME, stage)


def test_a_repo_of_something_else(hub: Hub, tmp_path: Path) -> None:
    """A repo without any file that mosslive reads is refused, with what is taken."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "weights.gguf").write_bytes(b"x")
    hub.add("some/other", tmp_path / "other")
    with pytest.raises(NoSuchModel, match="some/other has no file that mosslive reads"):
        local_folder("some/other")
    assert hub.fetched() == []


def test_what_is_said(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reason why a name cannot be used is one sentence with what to do."""
    from huggingface_hub import constants

    def said(name: str = NAME) -> str:
        with pytest.raises(NoSuchModel) as caught:
            local_folder(name)
        assert str(caught.value).startswith(f"No such folder: {name} (and not a reachable repo id:")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert f"{hub.url} has no such repo, or it is private" in said("no/such")
    hub.repos[NAME].token = "hf_secret"
    assert f"accept its terms at {hub.url}/{NAME} and set HF_TOKEN" in said()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    folder = local_folder(NAME)
    hub.down = True
    assert local_folder(NAME) == folder  # the cache is enough
    assert "it is not in the cache" in said("other/model")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert local_folder(NAME) == folder
    offline = "HF_HUB_OFFLINE is set and it is not in the cache; run `mosslive pull other/model`"
    assert offline in said("other/model")
    (folder / SHARD).unlink()
    assert "the cache has only a part of it" in said()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "no connection to http://127.0.0.1:9" in said("other/model")
