"""The commands with a complete model folder, and with the bundled model."""

import asyncio
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from mosslive.cli import demo_talk, sound_card
from mosslive.cli.app import app
from mosslive.codec import load_codec
from mosslive.codec.synth import synthesise_bigvgan, synthesise_codec
from mosslive.config import folders
from mosslive.errors import MossliveError
from mosslive.server.backend import load_backend
from mosslive.server.settings import ServerSettings
from mosslive.server.voice_store import VoiceStore
from mosslive.talk import CodecService
from mosslive.talk.cpu_threads import share_cpu_threads, shared_cpu_threads
from mosslive.talk.timing import TurnTiming
from tests.codec.conftest import speech

RATE = 22_050


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, nano_folder: Path) -> Path:
    """A folder with language model, codec and voice; replies are greedy and short."""
    home = tmp_path_factory.mktemp("whole")
    shutil.copytree(nano_folder, home / "lm")
    stated = {"do_sample": False, "max_new_tokens": 12, "min_new_tokens": 13}
    (home / "lm" / "generation_config.json").write_text(json.dumps(stated))
    synthesise_codec(home, "nano")
    (home / "voices").mkdir()
    soundfile.write(home / "question.flac", speech(0.4, RATE, seed=1), RATE)
    (home / "question.txt").write_text("What is this?\n")
    soundfile.write(home / "anna.wav", speech(1.6, RATE), RATE)
    load_codec(home).voice(home / "anna.wav").save(home / "voices" / "default.voice")
    return home


@pytest.fixture
def bundled(whole: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folders, "shipped_folder", lambda: whole)
    return whole


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result


def chat(*arguments: str | Path) -> dict[str, Any]:
    turn: dict[str, Any] = json.loads(run("chat", *arguments, "--json").stdout)["turns"][0]
    return turn


@pytest.mark.usefixtures("untraced")
def test_a_whole_model_needs_no_other_option(whole: Path, tmp_path: Path) -> None:
    """`chat` uses the folder's codec, voice and sampling; greedy replies do not depend on the
    seed."""
    question, seeds = whole / "question.flac", ("1", "2")
    waves = []
    for seed in seeds:
        out = tmp_path / f"{seed}.wav"
        assert chat(question, "--model", whole, "-o", out, "--seed", seed)["codes"] == 12
        waves.append(soundfile.read(out)[0])
    assert len(waves[0]) == 12 * 1920
    assert np.array_equal(*waves)


@pytest.mark.usefixtures("untraced")
def test_flags_win(whole: Path, tmp_path: Path) -> None:
    """`--max-new`, `--min-new` and `--sample` override the file; a preset overrides all of it."""
    question, model = whole / "question.flac", ("--model", whole)
    assert chat(question, *model, "--max-new", "9")["codes"] == 9
    first, second = (
        run("generate", whole, "--user", "Hi", "--sample", "--seed", seed, "--json").stdout
        for seed in "12"
    )
    assert json.loads(first)["sampling"]["temperature"] == 0.6
    assert json.loads(first)["codes"] != json.loads(second)["codes"]
    given = run(
        "generate", whole, "--user", "Hi", "--preset", "model-card", "--max-new", "3", "--json"
    )
    sampling = json.loads(given.stdout)["sampling"]
    assert (sampling["greedy"], sampling["temperature"], sampling["min_new"]) == (False, 0.7, 10)


def test_a_preset_ignores_an_unsupported_file(whole: Path, tmp_path: Path) -> None:
    """A preset makes a folder with an unsupported generation_config.json usable."""
    lm = shutil.copytree(whole / "lm", tmp_path / "lm")
    (lm / "generation_config.json").write_text('{"per_channel": [1, 2]}')
    refused = CliRunner().invoke(app, ["generate", str(lm), "--user", "Hi"])
    assert "generation_config.json: per_channel" in str(refused.exception)
    run("generate", lm, "--user", "Hi", "--preset", "driver", "--max-new", "2")


@pytest.mark.usefixtures("untraced")
def test_the_server_takes_the_same_parts(whole: Path) -> None:
    """The server uses the folder's codec, voice and sampling, and the folder's limit on a reply
    unless it has its own; the preset "driver" ignores the file."""
    backend = load_backend(ServerSettings(model=whole, seed=3))
    try:
        assert backend.speaks
        assert [one.name for one in backend.voices.visible_to("me")] == ["anna"]
        sampling = backend.sampling()
        assert (sampling.greedy, sampling.max_new, sampling.min_new, sampling.seed) == (
            True,
            12,
            13,
            3,
        )
        backend.settings = ServerSettings(model=whole, max_reply_s=0.8)
        assert backend.sampling().max_new == 10
        assert backend.sampling(max_rows=4).max_new == 4
    finally:
        asyncio.run(backend.close())
    plain = load_backend(ServerSettings(model=whole, preset="driver"))
    try:
        assert plain.sampling().temperature == 0.6
        assert not plain.sampling().greedy
    finally:
        asyncio.run(plain.close())


def test_the_server_checks_its_vocoder_first(whole: Path, tmp_path: Path) -> None:
    """A vocoder for another mel, or one without a codec, is an error before the model is loaded."""
    other = synthesise_bigvgan(tmp_path, "nano")
    with pytest.raises(MossliveError, match="trained on another mel"):
        load_backend(ServerSettings(model=whole, vocoder=other))
    with pytest.raises(MossliveError, match=r"vocoder is .*allowed: only together with a codec"):
        load_backend(ServerSettings(model=whole / "lm", vocoder=other))


@pytest.mark.parametrize("fails", ["warm", "fill"])
def test_a_server_that_cannot_start_leaves_no_thread(
    whole: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """A failure after the start of the codec thread leaves no thread running."""
    before = set(threading.enumerate())

    def breaks(*_: object, **__: object) -> None:
        raise MossliveError("no room")

    monkeypatch.setattr(CodecService if fails == "warm" else VoiceStore, fails, breaks)
    with pytest.raises(MossliveError, match="no room"):
        load_backend(ServerSettings(model=whole))
    left = set(threading.enumerate()) - before
    assert not [thread.name for thread in left if thread.name.startswith("mosslive")]


def test_inspect_reports_all_parts(whole: Path) -> None:
    """`inspect` reports language model, codec, voices and sampling in one table."""
    report = json.loads(run("inspect", whole, "--json").stdout)
    blocks = [block["block"] for block in report["blocks"]]
    assert {"trunk, 3 layers", "encoder", "HiFT vocoder", "voice, default"} <= set(blocks)
    assert report["bytes"] == sum(block["bytes"] for block in report["blocks"])
    assert report["sampling"]["greedy"] is True


def test_a_voice_of_another_codec_is_a_fault(whole: Path, tmp_path: Path) -> None:
    """`inspect` reports a voice of another codec."""
    home = shutil.copytree(whole, tmp_path / "home")
    shutil.rmtree(home / "codec")
    synthesise_codec(home, "nano", seed=5)
    result = CliRunner().invoke(app, ["inspect", str(home), "--json"])
    assert result.exit_code == 1
    (fault,) = json.loads(result.stdout)["faults"]
    assert "prepared by another codec" in fault["message"]


@pytest.mark.usefixtures("untraced")
def test_the_bundled_model_is_the_default(bundled: Path, tmp_path: Path) -> None:
    """`chat` uses the bundled model by default, and `bundled` works as a folder name."""
    out = tmp_path / "answer.wav"
    assert chat(bundled / "question.flac", "-o", out)["codes"] == 12
    assert soundfile.info(out).frames == 12 * 1920
    assert json.loads(run("inspect", "bundled", "--json").stdout)["folder"] == str(bundled)
    assert run("codec", "encode", bundled / "anna.wav", "--codec", "bundled").stdout


def test_demo_answers(bundled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`demo` prints question, answer and latency, writes a file, and plays it if possible."""
    played: list[int] = []

    async def play(sound: NDArray[np.float32], _: int) -> bool:
        played.append(len(sound))
        return True

    monkeypatch.setattr(sound_card, "play", play)
    out = tmp_path / "answer.wav"
    said = run("demo", "-o", out).stdout
    assert "question: What is this?" in said
    assert "answer:" in said
    assert "real-time factor" in said
    assert soundfile.info(out).frames == played[0] == 12 * 1920


def test_demo_json(bundled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`demo --json` prints one document; the suffix of -o chooses the format of the answer."""

    async def ask(*_: object) -> tuple[demo_talk.Answer, str]:
        timing = TurnTiming(1, "speech", None, 0.0)
        return demo_talk.Answer(np.zeros(24_000, np.float32), 24_000, "", timing), "A test."

    monkeypatch.setattr(demo_talk, "ask", ask)
    document = json.loads(run("demo", "-o", tmp_path / "answer.mp3", "--no-play", "--json").stdout)
    assert (document["question"], document["answer"]) == ("What is this?", "A test.")
    assert soundfile.info(document["output"]).format == "MP3"


@pytest.mark.parametrize(("had", "gets"), [(1, 1), (2, 1), (9, 4)])
def test_engine_and_codec_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, had: int, gets: int
) -> None:
    """On a CPU engine and codec get half of the threads each; with a GPU nothing changes."""
    set_to: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: had)
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    share_cpu_threads("cuda")
    assert not set_to
    share_cpu_threads("cpu")
    assert set_to == [gets]
    with shared_cpu_threads("cpu"):
        assert set_to == [gets, gets]
    assert set_to == [gets, gets, had], "others have them all again"


def test_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing bundled model raises before anything is loaded."""
    monkeypatch.setattr(folders, "shipped_folder", lambda: tmp_path)
    asked = CliRunner().invoke(app, ["chat", "--text", "Hi"])
    assert "this copy of mosslive has no bundled model" in str(asked.exception)
