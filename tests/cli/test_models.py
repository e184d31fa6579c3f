"""Models by name in the commands: `pull`, positional models, codecs, voices, devices, engines."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from mosslive import MossliveError
from mosslive.build import engine_cache
from mosslive.checkpoint import take_inventory
from mosslive.checkpoint.engine_folder import is_engine
from mosslive.checkpoint.hub import local_folder
from mosslive.cli import models
from mosslive.config.folders import cache_folder, find_parts, is_bundled, shipped_folder
from mosslive.config.published import COMPANIONS, MOSS_SPEECH
from mosslive.engine.read import pick_device
from mosslive.server.settings import ServerSettings, read_settings
from tests.cli.console import console
from tests.hub_server import Hub

CODEC = COMPANIONS[MOSS_SPEECH].codec
SHARD = "model-00002-of-00004.safetensors"


@pytest.fixture
def both(hub: Hub, codec_folder: Path) -> Hub:
    """A hub with the model and its codec."""
    hub.add(CODEC, codec_folder)
    return hub


def test_pull(both: Hub) -> None:
    """`pull` downloads model and codec, finds them usable, and says what they need and what is
    next."""
    done = console("pull", MOSS_SPEECH)
    assert done.returncode == 0, done.stderr
    assert f"{MOSS_SPEECH}: usable" in done.stdout
    assert f"{CODEC}: usable" in done.stdout
    for line in ("disk: ", "GPU memory: ", "memory without a GPU: ", "next: mosslive serve"):
        assert line in done.stdout
    both.asked.clear()
    document = json.loads(console("pull", MOSS_SPEECH, "--json").stdout)
    assert both.fetched() == []
    assert document["usable"]
    take_inventory(document["folders"][MOSS_SPEECH]).require_valid()
    needs = document["needs"]
    assert needs["gpu"]["fp8"] < needs["gpu"]["bf16"]
    assert "engine_folder" not in needs  # too small to be built


def test_pull_of_something_else(hub: Hub, tmp_path: Path) -> None:
    """`pull` of a folder, of no repo id, of an unknown repo and of a damaged one is one line and
    status 1."""
    (tmp_path / "there").mkdir()
    for name, line in {
        "there": "there is a folder of this machine; pull takes OWNER/NAME",
        "nowhere": "nowhere is not a repo id; pull takes OWNER/NAME",
        "no/such": "No such folder: no/such (and not a reachable repo id: ",
    }.items():
        done = console("pull", name)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"mosslive: {line}")
    (tmp_path / "published" / SHARD).write_bytes(b"no tensors")
    done = console("pull", MOSS_SPEECH, "--no-codec")
    assert done.returncode == 1
    assert "NOT USABLE" in done.stdout
    assert "GPU memory" not in done.stdout  # unknown without a codec
    assert "next:" not in done.stdout


def test_ctrl_c(hub: Hub, tmp_path: Path) -> None:
    """Ctrl-C ends a download at once with one line and status 130; the next call keeps the files
    that were complete, and no partial file is left."""
    hub.slow = SHARD
    changes = {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(tmp_path / "hf")}
    # A shell starts background jobs with SIGINT ignored, and so may whatever runs these tests.
    start = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    start += "import huggingface_hub.constants as c; c.DOWNLOAD_CHUNK_SIZE = 64; "
    start += "sys.argv = ['mosslive', 'pull', sys.argv[1]]; import mosslive.cli as m; m.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", start, MOSS_SPEECH],
        env=os.environ | changes,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert hub.begun.wait(60)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    hub.released.set()
    line = f"mosslive: stopped; run `mosslive pull {MOSS_SPEECH}` again to go on"
    assert (process.returncode, err.splitlines()) == (130, [line])
    assert not list((tmp_path / "hf").rglob("*.incomplete"))
    hub.slow = None
    hub.asked.clear()
    take_inventory(local_folder(MOSS_SPEECH)).require_valid()
    assert SHARD in hub.fetched()
    assert "config.json" not in hub.fetched()


def test_commands_take_a_repo_id(both: Hub, tmp_path: Path) -> None:
    """Commands that take a model or a codec take a repo id, with a revision."""
    both.add(MOSS_SPEECH, tmp_path / "published", "v1")
    assert console("inspect", f"{MOSS_SPEECH}@v1", "--no-values").returncode == 0
    options = ("--user", "Hi", "--reply", "text", "--max-new", "2", "--json")
    done = console("generate", MOSS_SPEECH, *options)
    assert json.loads(done.stdout)["rows"], done.stderr
    sound, codes = shipped_folder() / models.DEFAULT_RECORDING, ("--codec", CODEC, "--json")
    done = console("codec", "encode", sound, *codes)
    assert json.loads(done.stdout)["codes"], done.stderr
    engine = (
        ("verify", "no/such"),
        ("build", "no/such", "x"),
        ("bench", "step", "--model", "no/such"),
    )
    for command in (("inspect", "no/such"), ("serve", "no/such", "--port", "0"), *engine):
        done = console(*command)
        said = "mosslive: No such folder: no/such (and not a reachable repo id:"
        assert (done.returncode, done.stderr[: len(said)]) == (1, said)


def test_a_model_first_in_chat(hub: Hub, tmp_path: Path) -> None:
    """`chat MODEL` loads a repo id or folder; a model given twice is an error."""
    hub.add("some/model", tmp_path / "published")
    options = ("--reply", "text", "--text", "Hi", "--max-new", "2", "--json")
    done = console("chat", "some/model", *options)
    assert len(json.loads(done.stdout)["turns"]) == 1, done.stderr
    done = console("chat", "some/model", *options, "--model", "bundled")
    assert done.returncode == 2
    assert "given twice" in done.stderr


@pytest.mark.parametrize("name", ["a/question.wav", "question.flac", "nowhere", "x/y.OGG"])
def test_sound_files_are_no_models(name: str) -> None:
    """An argument that may be a sound file is not taken for a model, whether it exists or not."""
    assert models.leading_model([Path(name)]) is None


def test_companions(both: Hub, tmp_path: Path) -> None:
    """A published model gets its codec and a voice; what is given, or in its folder, wins."""
    parts = models.model_parts(Path(MOSS_SPEECH))
    assert parts.codec == local_folder(CODEC)
    assert parts.voice == shipped_folder() / models.DEFAULT_RECORDING
    own = tmp_path / "my.voice"
    given = models.model_parts(Path(MOSS_SPEECH), local_folder(CODEC), own)
    assert (given.codec, given.voice) == (parts.codec, own)
    both.add("some/model", tmp_path / "published")
    assert models.model_parts(Path("some/model")).codec is None
    assert models.model_parts(Path("bundled")) == find_parts("bundled")


def test_settings_of_a_server(both: Hub, codec_folder: Path) -> None:
    """`serve` gets folders and a device for every name, and keeps what is not a name."""
    settings = read_settings({"model": MOSS_SPEECH, "port": 1}, {"MOSSLIVE_CACHE": "x"})
    found = models.served(settings)
    assert found.model == local_folder(MOSS_SPEECH)
    assert found.codec == local_folder(CODEC)
    assert found.voice == shipped_folder() / models.DEFAULT_RECORDING
    assert found.device == pick_device("auto")
    assert found.port == 1
    bundled = models.served(ServerSettings())
    home = shipped_folder()
    assert bundled == replace(ServerSettings(), device=bundled.device, model=home, codec=home)
    assert is_bundled(bundled.model)  # as the page asks
    assert not is_bundled(found.model)
    done = console("serve", MOSS_SPEECH, "--model", "bundled")
    assert done.returncode == 2
    assert "given twice" in done.stderr


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default device is a GPU where there is one; unknown names and an absent GPU are one
    sentence."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [pick_device(name) for name in ("auto", "cpu", "cuda:1")] == ["cuda", "cpu", "cuda:1"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == "cpu"
    for name in ("gpu", "mps", "", "meta"):
        with pytest.raises(MossliveError, match=f"^Unknown device '{name}'; use cpu or cuda.$"):
            pick_device(name)
    with pytest.raises(MossliveError, match="finds no GPU, so device 'cuda' cannot be used"):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert models.device_of("auto", Path("bundled")) == "cpu"
    assert models.device_of("cuda", Path("bundled")) == "cuda"
    assert models.device_of("auto", Path("another")) == "cuda"
    done = console("serve", "--device", "gpu", "--port", "0")
    assert (done.returncode, done.stderr) == (
        1,
        "mosslive: Unknown device 'gpu'; use cpu or cuda.\n",
    )


def test_the_engine_of_a_gpu(
    nano_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the engine folder of a checkpoint takes its place and has its own precision; on a
    CPU, and for a small checkpoint, nothing is built."""
    monkeypatch.setenv("MOSSLIVE_CACHE", str(tmp_path))
    assert models.engine_of(nano_folder, "cpu", "float32", None).model == nano_folder
    with pytest.raises(typer.BadParameter, match="--fp8 needs a GPU"):
        models.engine_of(nano_folder, "cpu", None, "trunk")
    monkeypatch.setattr("mosslive.engine.read.read_device", lambda _: torch.device("cpu"))
    small = models.engine_of(nano_folder, "cuda", "bfloat16", None)
    assert (small.model, small.dtype) == (nano_folder, "bfloat16")

    asked: list[Any] = []

    def engine(self: engine_cache.EngineCache, source: Path, *given: Any) -> Path:
        assert self.folder == tmp_path
        asked.append(given[1:3])
        if not is_engine(source):
            source = tmp_path / "engine"
            source.mkdir(exist_ok=True)
            (source / "engine.json").touch()
        return source

    monkeypatch.setattr(engine_cache.EngineCache, "engine", engine)
    built = models.engine_of(nano_folder, "cuda", "float32", None)
    assert (built.model, built.dtype) == (tmp_path / "engine", None)
    models.engine_of(nano_folder, "cuda", None, "trunk")
    assert asked == [("float32", False), ("bfloat16", True)]
    assert models.engine_of(built.model, "cuda", None, None).model == built.model
    with pytest.raises(typer.BadParameter, match="has its precision"):
        models.engine_of(built.model, "cuda", None, "trunk")
    with pytest.raises(typer.BadParameter, match="--fp8 is 'all'; allowed: trunk"):
        models.engine_of(nano_folder, "cuda", None, "all")


def test_the_cache_folder(tmp_path: Path) -> None:
    """MOSSLIVE_CACHE wins over XDG_CACHE_HOME, which counts only if it is absolute."""
    mine = {"MOSSLIVE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}
    assert cache_folder(mine) == Path("/a")
    assert cache_folder({"XDG_CACHE_HOME": "/b"}) == Path("/b/mosslive")
    assert cache_folder({"XDG_CACHE_HOME": "b"}) == Path.home() / ".cache" / "mosslive"
    assert cache_folder({"MOSSLIVE_CACHE": "~/c"}) == Path.home() / "c"
