"""`mosslive chat` with files, text and a microphone."""

import asyncio
import json
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner, Result

from mosslive import LanguageModel, MossliveError, Turn
from mosslive.cli import chat_words, sound_card
from mosslive.cli.app import app
from mosslive.codec import load_codec
from mosslive.talk import load_turns
from tests.codec.conftest import quick_codec, speech

RATE = 22_050
SHORT = ("--max-new", "9", "--min-new", "10", "--seed", "3", "--system", "Hi.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A codec, a voice and two questions."""
    out = tmp_path_factory.mktemp("chat")
    quick_codec(out)
    soundfile.write(out / "anna.wav", speech(1.6, RATE), RATE)
    soundfile.write(out / "one.wav", speech(0.5, RATE, seed=1), RATE)
    soundfile.write(out / "two.wav", speech(0.7, RATE, seed=2), RATE)
    load_codec(out).voice(out / "anna.wav").save(out / "anna.voice")
    return out


def run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["chat", *map(str, arguments)], input=stdin)


def test_files_in_files_out(
    folder: Path, nano_folder: Path, nano_lm: LanguageModel, tmp_path: Path
) -> None:
    """Two files are two turns of one conversation. Replies are numbered and have the right length;
    the JSON has timings; the timeline and the saved conversation are written."""
    arguments = ("--model", nano_folder, "--codec", folder, "--voice", folder / "anna.voice")
    files = (folder / "one.wav", folder / "two.wav", "-o", tmp_path / "answer.wav", "--json")
    extra = ("--save", tmp_path / "talk.json", "--timeline", tmp_path / "time.html")
    result = run(*files, *arguments, *SHORT, *extra)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [turn["codes"] for turn in document["turns"]] == [9, 9]
    for number in (1, 2):
        samples, rate = soundfile.read(tmp_path / f"answer-{number}.wav")
        assert (len(samples), rate) == (9 * 1920, 24_000)
        assert samples.std() > 0
    timing = document["timings"][0]
    assert timing["ttfa_s"] == pytest.approx(sum(timing["stages_s"].values()))
    assert timing["audio_s"] == pytest.approx(9 * 0.08)
    html = (tmp_path / "time.html").read_text()
    assert "turn 2" in html
    assert "http" not in html
    sound, rate = soundfile.read(folder / "one.wav", dtype="float32")
    asked = Turn("user", codes=load_codec(folder).encode(sound, rate))
    saved = load_turns(tmp_path / "talk.json", nano_lm.ids)
    assert [said.role for said in saved] == ["system", "user", "assistant", "user", "assistant"]
    assert list(saved[1].rows) == nano_lm.format.turn(asked)
    # And it goes on where it was, in the terminal.
    more = run(
        "--model",
        nano_folder,
        "--reply",
        "text",
        "--resume",
        tmp_path / "talk.json",
        "--save",
        tmp_path / "more.json",
        *SHORT,
        stdin="Hello\nBye\n",
    )
    assert more.exit_code == 0, more.output
    grown = load_turns(tmp_path / "more.json", nano_lm.ids)
    assert [said.rows for said in grown[:5]] == [said.rows for said in saved]
    assert list(grown[5].rows) == nano_lm.format.turn(Turn("user", text="Hello"))


@pytest.mark.usefixtures("untraced")
def test_another_vocoder(
    folder: Path, nano_folder: Path, nano_lm: LanguageModel, tmp_path: Path, flow_bigvgan: Path
) -> None:
    """--vocoder: a live reply through BigVGAN is its codes rendered through BigVGAN by the library,
    1920 samples per code."""
    out, saved = tmp_path / "answer.wav", tmp_path / "talk.json"
    parts = ("--model", nano_folder, "--codec", folder, "--voice", folder / "anna.voice")
    length = ("--max-new", "33", "--min-new", "34", "--seed", "3", "--system", "Hi.")
    files = ("-o", out, "--save", saved)
    result = run("--text", "Hello", *parts, "--vocoder", flow_bigvgan, *length, *files)
    assert result.exit_code == 0, result.output
    rows = load_turns(saved, nano_lm.ids)[-1].rows
    ids = nano_lm.ids
    codes = [audio for text, audio in rows if text == ids.modality_pad and audio != ids.eosp]
    codec = load_codec(folder, vocoder=flow_bigvgan)
    stream = codec.decoder_stream(codec.voice(folder / "anna.voice"), tail="cached")
    wanted = np.concatenate((stream.push(codes), stream.finish()))
    sound, _ = soundfile.read(out, dtype="float32")
    assert len(codes) == 33
    assert sound.shape == wanted.shape == (33 * 1920,)
    np.testing.assert_allclose(sound, wanted.clip(-1, 1), atol=1e-3)  # 16 bits


@pytest.mark.usefixtures("untraced")
def test_text_to_speech(folder: Path, nano_folder: Path, tmp_path: Path) -> None:
    """`--text` with a spoken reply writes one file in the format of its suffix, prints question,
    answer and latency, and says once that the model makes no transcripts."""
    out = tmp_path / "answer.mp3"
    result = run(
        "--model",
        nano_folder,
        "--codec",
        folder,
        "--voice",
        folder / "anna.wav",
        "--text",
        "Hello",
        "-o",
        out,
        *SHORT,
    )
    assert result.exit_code == 0, result.output
    assert (soundfile.info(out).format, soundfile.info(out).frames) == ("MP3", 9 * 1920)
    assert "first audio after" in result.stderr
    assert result.stdout == "question: Hello\nanswer:   (0.72 s of speech)\n"
    assert result.stderr.count("no transcripts: this model does not state") == 1


@pytest.mark.usefixtures("untraced")
def test_speech_in_words_and_played(
    folder: Path, nano_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --transcripts the model's text mode writes down question and answer. Without -o the
    answer is played, and the command says once if there is no sound card."""
    played: list[int] = []

    async def play(sound: Any, rate_hz: int) -> bool:
        played.append(len(sound))
        return False

    async def transcribe(engine: Any, said: Any, settings: Any) -> str:
        assert (said.kind, settings.reply) == ("speech", "text")
        return f"words of the {said.role}"

    monkeypatch.setattr(sound_card, "play", play)
    monkeypatch.setattr(chat_words, "transcribe", transcribe)
    parts = ("--model", nano_folder, "--codec", folder, "--voice", folder / "anna.voice")
    files = (folder / "one.wav", folder / "two.wav")
    result = run(*files, *parts, *SHORT, "--transcripts")
    assert result.exit_code == 0, result.output
    assert result.stdout == 2 * "question: words of the user\nanswer:   words of the assistant\n"
    assert played == [9 * 1920]
    assert result.stderr.count("no sound card") == 1


@pytest.mark.usefixtures("untraced")
def test_text_answers_in_words(folder: Path, nano_folder: Path) -> None:
    """A text answer is its own words, for a written and for a spoken question."""
    length = ("--max-reply-s", "0.4", "--seed", "3", "--reply", "text", "--no-transcripts")
    parts = ("--model", nano_folder, "--codec", folder)
    result = run(folder / "one.wav", "--text", "Hi", *parts, *length, "--json")
    assert result.exit_code == 0, result.output
    spoken, written = json.loads(result.stdout)["turns"]
    assert (spoken["question_text"], written["question_text"]) == (None, "Hi")
    assert [one["answer_text"] for one in (spoken, written)] == [
        one["text"] or None for one in (spoken, written)
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "a spoken reply needs a codec and a voice"),
        (("x.wav", "--reply", "text"), "spoken questions need a codec"),
        (("x.wav", "--mic", "--reply", "text"), "--mic cannot be combined with audio files"),
        (("--mic", "-o", "x.wav", "--reply", "text"), "--mic plays its replies"),
        (("--max-new", "9", "--max-reply-s", "1"), "give --max-new or --max-reply-s, not both"),
    ],
)
def test_bad_options(nano_folder: Path, arguments: tuple[str, ...], message: str) -> None:
    """Bad combinations of options exit with code 2 before anything is loaded."""
    result = run("--model", nano_folder, *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_missing_audio_file(folder: Path, nano_folder: Path) -> None:
    """A missing audio file raises before the model is loaded."""
    result = run("nowhere.wav", "--model", "nowhere", "--codec", folder, "--reply", "text")
    assert "nowhere.wav: no such file" in str(result.exception)


def test_an_unknown_format(folder: Path, tmp_path: Path) -> None:
    """A suffix that cannot be written raises before the model is loaded, with those that can."""
    options = ("--model", "no", "--codec", folder, "--reply", "text", "-o", tmp_path / "a.xyz")
    result = run("--text", "Hi", *options)
    assert "cannot write .xyz files; use .wav, .flac, .ogg, .opus, .mp3" in str(result.exception)


@pytest.mark.parametrize("option", ["-o", "--save", "--timeline"])
def test_missing_output_folder(folder: Path, tmp_path: Path, option: str) -> None:
    """An output path without a folder raises before the model is loaded."""
    path = tmp_path / "nowhere" / "file"
    question = folder / "one.wav"
    result = run(question, "--model", "no", "--codec", folder, "--reply", "text", option, path)
    assert "its folder does not exist" in str(result.exception)


@pytest.mark.usefixtures("untraced")
def test_brackets_in_names_are_printed(folder: Path, nano_folder: Path, tmp_path: Path) -> None:
    """Square brackets in a path are printed as they are, not as markup."""
    arguments = ("--model", nano_folder, "--codec", folder, "--voice", folder / "anna.voice")
    out = tmp_path / "a[bold].wav"
    result = run("--text", "Hi", *arguments, *SHORT, "-o", out)
    assert f"wrote {out}" in result.stderr


def test_waiting_for_a_line_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the prompt leaves no thread or reader waiting for input."""
    from mosslive.cli.conversation import _typed_line

    keyboard, terminal = os.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)

        async def story() -> None:
            threads = threading.active_count()
            waiting = asyncio.ensure_future(_typed_line())
            for _ in range(3):
                await asyncio.sleep(0)
            assert threading.active_count() == threads
            waiting.cancel()
            await asyncio.wait({waiting})
            os.write(keyboard, b"Hello\n")
            assert await _typed_line() == "Hello\n"

        asyncio.run(story())
    os.close(keyboard)


class PortAudioError(Exception):
    pass


def fake_sounddevice(microphone: list[np.ndarray[Any, Any]], played: list[float]) -> Any:
    """A fake sound card: records the given audio and plays until the conversation ends."""

    class Stream:
        def __init__(self, rate: int, block: int, channels: int, callback: Any) -> None:
            self.rate, self.block, self.callback = rate, block, callback

        def close(self) -> None:
            pass

    class InputStream(Stream):
        def start(self) -> None:
            for piece in microphone:
                self.callback(piece[:, None], len(piece), None, None)

    class OutputStream(Stream):
        def start(self) -> None:
            played.append(self.rate)

    return SimpleNamespace(
        PortAudioError=PortAudioError,
        query_devices=lambda kind: {"default_samplerate": 16_000.0},
        InputStream=InputStream,
        OutputStream=OutputStream,
    )


@pytest.mark.usefixtures("untraced")
def test_the_microphone(folder: Path, nano_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded audio becomes a turn, and the reply is played in order."""
    from mosslive.cli import conversation, microphone
    from tests.talk.rig import LoudVad, frames

    wave = frames((0.3, False), (0.6, True), (0.8, False))
    pieces = [wave[first : first + 320] for first in range(0, len(wave), 320)]
    rates: list[float] = []
    monkeypatch.setitem(sys.modules, "sounddevice", fake_sounddevice(pieces, rates))
    monkeypatch.setattr(conversation, "SileroVad", LoudVad)
    heard: list[int] = []
    monkeypatch.setattr(microphone.Duplex, "play", lambda self, pcm: heard.append(len(pcm)))

    def done(timing: Any) -> None:
        raise MossliveError("the user has gone")

    monkeypatch.setattr(conversation, "_print_timing", done)
    voice = folder / "anna.voice"
    result = run("--mic", "--model", nano_folder, "--codec", folder, "--voice", voice, *SHORT)
    assert str(result.exception) == "the user has gone"
    assert rates == [24_000]
    assert sum(heard) == 9 * 1920


@pytest.mark.usefixtures("untraced")
def test_ctrl_c_at_the_microphone_is_its_end(
    folder: Path, nano_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After Ctrl-C the files and the JSON are written, and late audio is no error."""
    from mosslive.cli import conversation
    from tests.talk.rig import LoudVad, frames

    wave = frames((0.3, False), (0.6, True), (0.8, False))
    monkeypatch.setitem(sys.modules, "sounddevice", card := fake_sounddevice([wave], []))
    monkeypatch.setattr(conversation, "SileroVad", LoudVad)
    monkeypatch.setattr(
        card.InputStream, "close", lambda self: self.callback(wave[:320, None], 320, None, None)
    )

    def interrupt(timing: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # as the first Ctrl-C does

    monkeypatch.setattr(conversation, "_print_timing", interrupt)
    errors: list[Any] = []
    monkeypatch.setattr(
        asyncio.BaseEventLoop, "call_exception_handler", lambda s, e: errors.append(e)
    )
    voice, saved = folder / "anna.voice", tmp_path / "talk.json"
    arguments = ("--mic", "--model", nano_folder, "--codec", folder, "--voice", voice, *SHORT)
    result = run(*arguments, "--json", "--save", saved)
    assert result.exit_code == 0, result.exception
    document = json.loads(result.stdout)
    assert [turn["codes"] for turn in document["turns"]] == [9]
    assert len(document["timings"]) == 1
    assert saved.exists()
    assert not errors


def test_queued_audio_is_played_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The playback callback plays samples in order, then silence, and reports the played count; an
    interruption empties its queue."""
    from mosslive.cli.microphone import Duplex

    monkeypatch.setitem(sys.modules, "sounddevice", fake_sounddevice([], []))
    reports: list[int] = []
    loop = SimpleNamespace(call_soon_threadsafe=lambda call, *given: call(*given))
    duplex = Duplex(SimpleNamespace(played=reports.append), 24_000, loop)  # type: ignore[arg-type]
    duplex.play(np.arange(6, dtype=np.float32) / np.float32(10))
    block = np.ones((4, 1), np.float32)
    duplex._play(block, 4, None, None)
    assert block[:, 0].tolist() == pytest.approx([0, 0.1, 0.2, 0.3])
    duplex._play(block, 4, None, None)
    assert block[:, 0].tolist() == pytest.approx([0.4, 0.5, 0, 0])
    assert reports == [4, 6]
    duplex.play(np.ones(9, np.float32))
    duplex.new_reply()
    duplex._play(block, 4, None, None)
    assert not block.any()
    assert reports == [4, 6]


@pytest.mark.parametrize("missing", ["package", "device"])
def test_no_microphone(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """A missing sounddevice package or sound device raises with what to do."""
    from mosslive.cli.microphone import Duplex

    card = fake_sounddevice([], [])

    def nothing(kind: str) -> None:
        raise PortAudioError("Error querying device -1")

    card.query_devices = nothing
    monkeypatch.setitem(sys.modules, "sounddevice", None if missing == "package" else card)
    message = "pip install 'mosslive\\[talk\\]'" if missing == "package" else "no sound device"
    with pytest.raises(MossliveError, match=message):
        Duplex(None, 24_000, None)  # type: ignore[arg-type]
