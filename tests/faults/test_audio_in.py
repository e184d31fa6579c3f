"""Audio files from outside, damaged and malicious: refused or decoded, with bounded time and
memory, and never at the expense of the server's process."""

import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mosslive.codec.sound import BadSound, read_sound
from mosslive.server import audio_decoder, audio_files
from mosslive.server.api_errors import ApiError
from mosslive.server.audio_decoder import AudioDecoder, DecoderFailed
from mosslive.server.audio_files import read_file
from tests.codec.conftest import speech
from tests.faults.bombs import check_bomb
from tests.faults.damage import LONG, Damage, damages, many

RATE = 24_000
FORMATS = {
    "WAV": "PCM_16",
    "FLAC": "PCM_16",
    "OGG": "VORBIS",
    "OPUS": "OPUS",
    "MP3": "MPEG_LAYER_III",
}
MORE = {"WAV float": "FLOAT", "WAV ADPCM": "IMA_ADPCM", "AIFF": "PCM_24", "CAF": "ALAC_16"}


def encoded(kind: str, wave: NDArray[np.float32], rate_hz: int = RATE) -> bytes:
    out, subtype = io.BytesIO(), (FORMATS | MORE)[kind]
    container = "OGG" if kind == "OPUS" else kind.split()[0]
    soundfile.write(out, wave, rate_hz, format=container, subtype=subtype)
    return out.getvalue()


FILES = {kind: encoded(kind, speech(0.3, RATE)) for kind in (FORMATS | MORE if LONG else FORMATS)}


@pytest.fixture
def decoder() -> Iterator[AudioDecoder]:
    made = AudioDecoder()
    yield made
    made.close()


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_read(kind: str) -> None:
    """What is written is heard: the first channel, at its rate, without clipping."""
    wave = speech(0.3, RATE)
    sound = read_file(encoded(kind, np.stack((wave, -wave), 1)), 60.0)
    assert sound.rate_hz == RATE
    assert abs(len(sound.wave) / sound.rate_hz - 0.3) < 0.1
    if kind in ("WAV", "FLAC"):
        assert np.allclose(sound.wave.numpy(), wave, atol=1e-4)


def damaged_file(decoder: AudioDecoder, kind: str, two: list[Damage]) -> None:
    """Refused, or sound in its limits; and the process that decodes is still there."""
    data = FILES[kind]
    for damage in two:
        data = damage.of(data)
    decoded = decoder.decode(data, 60.0)
    if not isinstance(decoded, str):
        wave, rate_hz = decoded
        assert 0 < len(wave) <= 60 * rate_hz
        assert np.isfinite(wave).all()
        assert np.abs(wave).max() <= 1


def test_damaged_files(decoder: AudioDecoder) -> None:
    """No damage of a file of any format crashes or stops the decoder."""

    @many(60)
    @given(st.sampled_from(sorted(FILES)), st.lists(damages, min_size=1, max_size=2))
    def property_holds(kind: str, two: list[Damage]) -> None:
        damaged_file(decoder, kind, two)

    property_holds()


def flac_of_unknown_length(seconds: int) -> bytes:
    """FLAC states the number of samples in 36 bits of its first block; 0: it is not known."""
    data = bytearray(encoded("FLAC", np.zeros(seconds * 8000, np.float32), 8000))
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    return bytes(data)


def flac_that_claims_a_year() -> bytes:
    data = bytearray(FILES["FLAC"])
    data[21] |= 0x0F
    data[22:26] = b"\xff" * 4
    return bytes(data)


def wav_that_claims_gigabytes() -> bytes:
    data = bytearray(FILES["WAV"])
    data[4:8] = data[40:44] = b"\xff\xff\xff\x7f"
    return bytes(data)


def junk(count: int, before: bytes = b"") -> bytes:
    return before + np.random.default_rng(0).bytes(count)


BOMBS: dict[str, Callable[[], bytes]] = {
    "an hour": lambda: encoded("FLAC", np.zeros(3600 * 8000, np.float32), 8000),
    "an hour of unknown length": lambda: flac_of_unknown_length(3600),
    "claims a year": flac_that_claims_a_year,
    "claims gigabytes": wav_that_claims_gigabytes,
    "8 channels at 192 kHz": lambda: encoded("FLAC", np.zeros((9_600_000, 8), "f4"), 192_000),
    "an hour of MP3": lambda: encoded("MP3", np.zeros(3600 * 8000, np.float32), 8000),
    "megabytes of junk": lambda: junk(20 << 20),
    "megabytes of zeros": lambda: bytes(20 << 20),
    "MP3 and junk": lambda: junk(20 << 20, FILES["MP3"]),
    "OGG and junk": lambda: junk(20 << 20, FILES["OGG"]),
    "empty MP3 frames": lambda: b"\xff\xfb\x90\x00" * (5 << 20),
    "empty OGG pages": lambda: (b"OggS" + bytes(23)) * 700_000,
    "a chain of OGG streams": lambda: FILES["OGG"] * 2000,
    "a tag of 256 MB": lambda: b"ID3\x04\x00\x00\x7f\x7f\x7f\x7f" + FILES["MP3"],
}
QUICK = ("an hour", "claims a year", "claims gigabytes", "megabytes of junk", "MP3 and junk")


@pytest.mark.parametrize("bomb", [name for name in BOMBS if LONG or name in QUICK])
def test_bombs(bomb: str) -> None:
    """A file that claims or holds too much takes little time and memory, in this process too."""
    check_bomb(BOMBS[bomb]())


class Killer(audio_decoder._Process):
    """Kills its process as soon as it exists, as a crash of the decoder would."""

    def __init__(self) -> None:
        super().__init__()
        os.kill(self._process.pid, signal.SIGSEGV)


def test_a_decoder_that_crashes(monkeypatch: pytest.MonkeyPatch, decoder: AudioDecoder) -> None:
    """Its file is refused, the server goes on, and the next file gets a new process."""
    monkeypatch.setattr(audio_files, "_decoder", lambda: decoder)
    with monkeypatch.context() as crashing:
        crashing.setattr(audio_decoder, "_Process", Killer)
        with pytest.raises(ApiError, match="not readable as audio"):
            read_file(FILES["WAV"], 60.0)
    assert len(read_file(FILES["WAV"], 60.0).wave) == len(speech(0.3, RATE))


def test_a_decoder_that_hangs(monkeypatch: pytest.MonkeyPatch, decoder: AudioDecoder) -> None:
    """It is killed when its time is over."""
    assert not isinstance(decoder.decode(FILES["WAV"], 60.0), str)
    (process,) = decoder._idle
    os.kill(process._process.pid, signal.SIGSTOP)
    monkeypatch.setattr(audio_decoder, "_MOST_S", 0.2)
    with pytest.raises(DecoderFailed, match="status -9"):
        decoder.decode(FILES["WAV"], 60.0)
    assert process._process.poll() is not None


def test_the_decoder_has_little_memory(decoder: AudioDecoder) -> None:
    """Its addresses are limited, whatever a file asks for."""
    decoder.decode(FILES["WAV"], 1.0)
    limits = Path(f"/proc/{decoder._idle[0]._process.pid}/limits")
    if not limits.exists():
        pytest.skip("only Linux shows the limits of a process")
    (line,) = [one for one in limits.read_text().splitlines() if one.startswith("Max address")]
    assert int(line.split()[3]) < 2 << 30


def test_files_of_the_command_line(tmp_path: Path) -> None:
    """Files that a user names are read by blocks too: a header cannot make the memory run out."""
    for name in ("claims a year", "claims gigabytes"):
        path = tmp_path / "x"
        path.write_bytes(BOMBS[name]())
        with suppress(BadSound):
            assert len(read_sound(path).wave) <= len(speech(0.3, RATE))

    @many(30)
    @given(st.sampled_from(sorted(FILES)), damages)
    def property_holds(kind: str, damage: Damage) -> None:
        path.write_bytes(damage.of(FILES[kind]))
        try:
            sound: Any = read_sound(path)
        except BadSound:
            return
        assert sound.wave.isfinite().all()

    property_holds()
