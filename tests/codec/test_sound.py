"""Sound of callers and files: errors name the value and what is allowed."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from mosslive.codec.sound import BadSound, mono, read_sound, write_sound


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.zeros((100, 0), np.float32), r"shape \[100, 0\]; allowed: \[samples, channels\], 1 to"),
        (np.zeros((2, 8000), np.float32), r"shape \[2, 8000\]; allowed"),
        (torch.zeros(100, device="meta"), "without memory or sparse; allowed: ordinary"),
        (torch.zeros(100).to_sparse(), "without memory or sparse; allowed: ordinary"),
        (np.array(["a"]), "sound of type <U1; allowed: floating point or int16"),
    ],
)
def test_invalid_sound_is_refused(given: object, said: str) -> None:
    """Bad input of any container type is an error that names it."""
    with pytest.raises(BadSound, match=said):
        mono(given)  # type: ignore[arg-type]


def test_the_first_channel_is_taken() -> None:
    """Of several channels the first is used, in any byte order and in int16 as in float."""
    both = np.array([[0.5, -1.0], [0.25, 1.0]])
    wanted = torch.tensor([0.5, 0.25])
    assert torch.equal(mono(both), wanted)
    assert torch.equal(mono(both.astype(">f8")), wanted)
    assert torch.equal(mono((both * 32768).clip(-32768, 32767).astype(np.int16)), wanted)


def test_a_folder_is_not_an_audio_file(tmp_path: Path) -> None:
    """The error is ours and says what is wrong; it is not that of a library."""
    with pytest.raises(BadSound, match="is a folder; allowed: a file of sound"):
        read_sound(tmp_path)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.wav", "WAV"),
        ("a.WAV", "WAV"),
        ("a", "WAV"),
        ("a.flac", "FLAC"),
        ("a.ogg", "OGG"),
        ("a.opus", "OGG"),
        ("a.mp3", "MP3"),
    ],
)
def test_the_suffix_chooses_the_format(tmp_path: Path, name: str, form: str) -> None:
    """A file has the format of its suffix and all samples; without a suffix it is WAV."""
    wave = np.sin(np.arange(150_000, dtype=np.float32) / 20) * np.float32(1.05)
    write_sound(tmp_path / name, wave, 24_000)
    info = soundfile.info(tmp_path / name)
    assert (info.format, info.samplerate, info.frames) == (form, 24_000, len(wave))
    sound, _ = soundfile.read(tmp_path / name, dtype="float32")
    clipped = np.clip(wave, -1, 1)
    assert np.corrcoef(sound, clipped)[0, 1] > 0.99


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    """The error for an unknown suffix names the formats, and nothing is written."""
    with pytest.raises(BadSound, match=r"cannot write \.xyz files; use \.wav, \.flac, .*\.mp3$"):
        write_sound(tmp_path / "a.xyz", np.zeros(9, np.float32), 24_000)
    assert not list(tmp_path.iterdir())
