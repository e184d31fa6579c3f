"""`mosslive codec` and `mosslive voice`."""

import json
from pathlib import Path

import pytest
import soundfile
from typer.testing import CliRunner, Result

from mosslive.cli.app import app
from mosslive.codec import Codec, Sound, Voice, load_codec
from mosslive.errors import MossliveError
from tests.codec.conftest import quick_codec, speech


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A codec and a recording."""
    out = tmp_path_factory.mktemp("cli-codec")
    quick_codec(out)
    soundfile.write(out / "anna.wav", speech(1.6, 22050), 22050)
    return out


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_encode_prints_the_codes(folder: Path) -> None:
    """`encode` prints the library's codes, as numbers or JSON."""
    sound, rate = soundfile.read(folder / "anna.wav", dtype="float32")
    codes = load_codec(folder).encode(sound, rate)
    arguments = ("codec", "encode", folder / "anna.wav", "--codec", folder)
    assert run(*arguments).stdout.split() == [str(code) for code in codes]
    assert json.loads(run(*arguments, "--json").stdout) == {"codes": codes, "seconds": 1.6}


def test_a_model_with_one_voice_makes_none(folder: Path, tmp_path: Path) -> None:
    """`voice make` is refused where its result would have no effect."""
    out = tmp_path / "a.voice"
    made = run("voice", "make", folder / "anna.wav", "--codec", "bundled", "-o", out)
    assert made.exit_code == 1
    assert "trained on one voice" in str(made.exception)
    assert not out.exists()


@pytest.mark.parametrize("chunk", ["0", "5"])
@pytest.mark.usefixtures("untraced")
def test_voice_then_decode(folder: Path, tmp_path: Path, chunk: str) -> None:
    """`voice make` and `decode` write a WAV of exactly 1920 samples per code."""
    voice = tmp_path / "anna.voice"
    made = run("voice", "make", folder / "anna.wav", "--codec", folder, "-o", voice, "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["codes"] == 20
    (tmp_path / "codes.json").write_text(json.dumps(list(range(30))))
    out = tmp_path / "out.wav"
    done = run(
        *("codec", "decode", tmp_path / "codes.json", "--codec", folder),
        *("--voice", voice, "-o", out, "--chunk", chunk, "--json"),
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["samples"] == 30 * 1920
    samples, rate = soundfile.read(out)
    assert (len(samples), rate) == (30 * 1920, 24000)


def test_resynth(folder: Path, tmp_path: Path) -> None:
    """`resynth` encodes and decodes a recording with its own voice."""
    out = tmp_path / "again.wav"
    done = run("codec", "resynth", folder / "anna.wav", "--codec", folder, "-o", out)
    assert done.exit_code == 0, done.output
    assert soundfile.info(out).frames == 20 * 1920


@pytest.mark.usefixtures("untraced")
def test_another_vocoder(folder: Path, tmp_path: Path) -> None:
    """--vocoder speaks through a BigVGAN folder: other sound of the same length; one for another
    mel is refused."""
    for name, mel in (("fits", "flow"), ("other", "published")):
        only = ("--only", "bigvgan", "--bigvgan-mel", mel)
        assert run("synth", tmp_path / name, *only).exit_code == 0
    arguments = ("codec", "resynth", folder / "anna.wav", "--codec", folder, "--chunk", "0")
    sounds = []
    for number, extra in enumerate(((), ("--vocoder", tmp_path / "fits" / "bigvgan"))):
        out = tmp_path / f"{number}.wav"
        done = run(*arguments, "-o", out, *extra)
        assert done.exit_code == 0, done.output
        sounds.append(soundfile.read(out)[0])
    assert [len(sound) for sound in sounds] == [20 * 1920] * 2
    assert abs(sounds[0] - sounds[1]).max() > 1e-3
    refused = run(*arguments, "-o", tmp_path / "no.wav", "--vocoder", tmp_path / "other/bigvgan")
    assert refused.exit_code == 1
    assert "trained on another mel than the flow makes" in str(refused.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("encode", "nowhere.wav"), "nowhere.wav: no such file"),
        (("resynth", "nowhere.wav", "-o", "x.wav"), "nowhere.wav: no such file"),
    ],
)
def test_bad_input(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    """A missing file is named, and the exit code is 1."""
    result = run("codec", *arguments, "--codec", folder)
    assert result.exit_code == 1
    assert message in str(result.exception)


@pytest.mark.usefixtures("untraced")
def test_a_long_recording_speaks_with_its_first_half_minute(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default voice is cut to 30 s, because the flow's limit counts voice and reply."""
    heard: list[float] = []
    honest = Codec.voice

    def noted(self: Codec, source: Sound) -> Voice:
        heard.append(len(source.wave) / source.rate_hz)
        return honest(self, Sound(source.wave[: source.rate_hz], source.rate_hz))

    monkeypatch.setattr(Codec, "voice", noted)
    soundfile.write(tmp_path / "long.wav", speech(31, 8000), 8000)
    out = tmp_path / "again.wav"
    done = run("codec", "resynth", tmp_path / "long.wav", "--codec", folder, "-o", out)
    assert done.exit_code == 0, done.output
    assert heard == [30]


def test_outputs_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    """An unwritable output raises with the file's name."""
    nowhere, anna = tmp_path / "nowhere", folder / "anna.wav"
    for arguments in (
        ("voice", "make", anna, "--codec", folder, "-o", nowhere / "a.voice"),
        ("codec", "resynth", anna, "--codec", folder, "-o", nowhere / "a.wav"),
    ):
        done = run(*arguments)
        assert isinstance(done.exception, MossliveError | SystemExit), done.exception
        assert "cannot be written" in f"{done.exception} {done.output}"
