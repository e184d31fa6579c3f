"""`mosslive chat` with files of every kind: unusual ones work, bad ones are named in the error."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mosslive import LanguageModel, Turn
from mosslive.codec import load_codec
from mosslive.talk import load_turns
from tests.cli.test_chat import SHORT, folder, run
from tests.codec.conftest import speech

__all__ = ["folder"]


def test_strange_files(
    folder: Path, nano_folder: Path, nano_lm: LanguageModel, tmp_path: Path
) -> None:
    """Files with 8 bits, 96 kHz, two channels, an odd rate or one sample are each a turn with the
    offline codes."""
    wave = speech(0.3, 16_000)
    soundfile.write(tmp_path / "bits.wav", wave, 16_000, subtype="PCM_U8")
    soundfile.write(tmp_path / "fast.wav", np.repeat(wave, 6), 96_000)
    soundfile.write(tmp_path / "two.wav", np.stack((wave, -wave), 1), 16_000)
    soundfile.write(tmp_path / "odd.flac", wave, 11_025)
    soundfile.write(tmp_path / "one.wav", wave[:1], 16_000)
    files = [tmp_path / name for name in ("bits.wav", "fast.wav", "two.wav", "odd.flac", "one.wav")]
    saved, out = tmp_path / "talk.json", tmp_path / "answer.wav"
    model = ("--model", nano_folder, "--codec", folder, "--voice", folder / "anna.voice")
    result = run(*files, "-o", out, "--save", saved, *model, *SHORT)
    assert result.exit_code == 0, result.exception
    asked = [said for said in load_turns(saved, nano_lm.ids) if said.role == "user"]
    codec = load_codec(folder)
    for number, (path, said) in enumerate(zip(files, asked, strict=True)):
        sound, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
        codes = codec.encode(sound[:, 0], rate_hz)
        assert list(said.rows) == nano_lm.format.turn(Turn("user", codes=codes)), path.name
        assert soundfile.info(tmp_path / f"answer-{number + 1}.wav").frames == 9 * 1920


BAD_SOUND: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "not readable as sound"),
    "no samples": (lambda path: soundfile.write(path, np.zeros(0), 16_000), "holds no samples"),
    "cut in its header": (lambda path: path.write_bytes(b"RIFF\0\0\0\0WAVEfmt "), "not readable"),
    "a folder": (lambda path: path.mkdir(), "is a folder; allowed"),
    "missing": (lambda path: None, "no such file"),
    "too fast": (lambda path: soundfile.write(path, np.zeros(99), 384_000), "8000..192000 Hz"),
    "not finite": (
        lambda path: soundfile.write(path, np.full(99, np.nan), 16_000, subtype="FLOAT"),
        "not finite",
    ),
}


@pytest.mark.parametrize("what", BAD_SOUND)
def test_bad_sound(folder: Path, tmp_path: Path, what: str) -> None:
    """The error names the file, before anything is loaded, and nothing is written."""
    make, message = BAD_SOUND[what]
    make(path := tmp_path / "question.wav")
    out = tmp_path / "answer.wav"
    result = run(path, "-o", out, "--model", "no", "--codec", folder, "--voice", "no.voice")
    assert result.exit_code == 1
    assert str(path) in str(result.exception)
    assert message in str(result.exception)
    assert not out.exists()


@pytest.mark.parametrize("option", ["-o", "--save", "--timeline"])
def test_a_target_that_is_a_folder(folder: Path, tmp_path: Path, option: str) -> None:
    """A target that cannot be written gives an error before anything is loaded, not after the
    conversation."""
    result = run(
        "--text", "Hi", option, tmp_path, "--model", "no", "--codec", folder, "--voice", "no.voice"
    )
    assert f"{tmp_path}: cannot be written: it is a folder" in str(result.exception)


def test_a_written_reply_has_no_sound(nano_folder: Path, tmp_path: Path) -> None:
    """If the reply to be written to a sound file is text, the command says that there is no
    sound."""
    out = tmp_path / "answer.wav"
    result = run(
        "--text", "Hi", "--reply", "text", "-o", out, "--model", nano_folder, "--max-new", "3"
    )
    assert result.exit_code == 0, result.exception
    assert f"the reply has no audio; {out} was not written" in result.stderr
    assert not out.exists()


@pytest.fixture(scope="module")
def saved(folder: Path, nano_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "talk.json"
    result = run("--text", "Hi", "--save", path, "--model", nano_folder, "--reply", "text", *SHORT)
    assert result.exit_code == 0, result.exception
    return path


BAD_FILES: dict[str, tuple[Callable[[str], str], str]] = {
    "empty": (lambda text: "", "not a conversation file"),
    "cut off": (lambda text: text[: len(text) // 2], "not a conversation file"),
    "of zeros": (lambda text: "\0" * 99, "not a conversation file"),
    "too deep": (lambda text: "[" * 100_000, "not a conversation file"),
    "something else": (lambda text: "[]", "allowed: an object with format"),
    "of another version": (lambda text: text.replace('"version":1', '"version":2'), "version 1"),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_bad_conversation_files(saved: Path, tmp_path: Path, what: str) -> None:
    """The error names the file, before anything is loaded."""
    change, message = BAD_FILES[what]
    path = tmp_path / "talk.json"
    path.write_text(change(saved.read_text()))
    result = run("--text", "Hi", "--resume", path, "--model", "no", "--reply", "text")
    assert str(path) in str(result.exception)
    assert message in str(result.exception)


@pytest.mark.parametrize(
    ("key", "message"), [("model", "saved with another model"), ("turns", "not whole")]
)
def test_conversations_that_do_not_fit_the_model(
    saved: Path, folder: Path, nano_folder: Path, tmp_path: Path, key: str, message: str
) -> None:
    """A conversation of another model or with half a turn is refused, no thread is left, and
    nothing is saved."""
    document = json.loads(saved.read_text())
    if key == "model":
        document["model"]["eosp"] += 1
    else:
        document["turns"][1]["rows"].pop()
    path, out = tmp_path / "talk.json", tmp_path / "more.json"
    path.write_text(json.dumps(document))
    model = ("--model", nano_folder, "--codec", folder, "--voice", folder / "anna.voice")
    threads = set(threading.enumerate())
    result = run("--text", "Hi", "--resume", path, "--save", out, *model, *SHORT)
    assert message in str(result.exception)
    assert set(threading.enumerate()) <= threads
    assert not out.exists()


def test_resumed_twice(saved: Path, nano_folder: Path, tmp_path: Path) -> None:
    """Resuming does not change the file, resuming twice gives the same conversation, and a file can
    be resumed in place."""
    before = saved.read_bytes()
    texts = []
    for name in ("one.json", "two.json"):
        more = ("--resume", saved, "--save", tmp_path / name)
        result = run("--text", "Go on", *more, "--model", nano_folder, "--reply", "text", *SHORT)
        assert result.exit_code == 0, result.exception
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1] != before
    assert saved.read_bytes() == before
    place = tmp_path / "one.json"
    more = ("--resume", place, "--save", place)
    result = run("--text", "Go on", *more, "--model", nano_folder, "--reply", "text", *SHORT)
    assert result.exit_code == 0, result.exception
    assert len(json.loads(place.read_text())["turns"]) == 7
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
