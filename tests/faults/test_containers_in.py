"""M4A, WebM and AAC files from outside: decoded as they sound, or refused in bounded time and
memory; FFmpeg never chooses the format and never opens anything else."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosslive.server import container_decode
from mosslive.server.api_errors import ApiError
from mosslive.server.audio_decoder import AudioDecoder
from mosslive.server.audio_files import read_file, write_file
from mosslive.server.child_processes import child_environment
from mosslive.server.container_decode import demuxer_of
from mosslive.server.decode_process import decode
from tests.codec.conftest import speech
from tests.faults.bombs import check_bomb
from tests.faults.containers import CONTAINERS, contained, with_video
from tests.faults.damage import LONG, Damage, damages, many

RATE = 24_000
FILES = {kind: contained(kind, speech(0.3, RATE), RATE) for kind in CONTAINERS}


@pytest.fixture
def decoder() -> Iterator[AudioDecoder]:
    made = AudioDecoder()
    yield made
    made.close()


@pytest.mark.parametrize("kind", CONTAINERS)
def test_every_container_is_read(kind: str) -> None:
    """What is written is heard: the first channel of two, at its rate."""
    wave = speech(0.3, RATE)
    sound = read_file(contained(kind, np.stack((wave, 0 * wave), 1), RATE), 60.0)
    assert sound.rate_hz == (48_000 if kind == "WEBM" else RATE)  # Opus always decodes at 48 kHz
    assert abs(len(sound.wave) / sound.rate_hz - 0.3) < 0.1
    assert 0.5 < sound.wave.std() / wave.std() < 1.5
    if kind in ("M4A ALAC", "MKV FLAC"):
        assert np.allclose(sound.wave.numpy(), wave, atol=1e-4)


def test_aac_is_written() -> None:
    """AAC that the server writes is an ADTS stream that it also reads."""
    wave = speech(0.3, RATE)
    for length in (0, 1, 1023, len(wave)):
        data = write_file(wave[:length], RATE, "aac")
        assert demuxer_of(data) == "aac"
    sound, rate_hz = decode(data, 60.0)
    assert rate_hz == RATE
    assert 0 <= len(sound) - len(wave) < 4096  # the encoder's delay and its last frame


def test_damaged_containers(decoder: AudioDecoder) -> None:
    """No damage of a container crashes or stops the decoder, or yields sound beyond its limits."""

    @many(60)
    @given(st.sampled_from(sorted(FILES)), st.lists(damages, min_size=1, max_size=2))
    def property_holds(kind: str, two: list[Damage]) -> None:
        data = FILES[kind]
        for damage in two:
            data = damage.of(data)
        decoded = decoder.decode(data, 60.0)
        if not isinstance(decoded, str):
            wave, rate_hz = decoded
            assert 0 < len(wave) <= 60 * rate_hz
            assert np.isfinite(wave).all()
            assert np.abs(wave).max() <= 1

    property_holds()


def m4a_with(box: bytes, skip: int, value: bytes) -> bytes:
    """An M4A file with other numbers in the first box of that kind."""
    data = bytearray(FILES["M4A"])
    at = data.index(box) + 4 + skip
    data[at : at + len(value)] = value
    return bytes(data)


BOMBS: dict[str, Callable[[], bytes]] = {
    "an hour of silence": lambda: contained("MKV FLAC", np.zeros(3600 * 8000, "f4"), 8000),
    "claims billions of packets": lambda: m4a_with(b"stsz", 4, b"\0\0\0\1\xff\xff\xff\xff"),
    "claims long packets": lambda: m4a_with(b"stsz", 4, b"\x7f\xff\xff\xff\0\0\1\0"),
    "claims a year": lambda: m4a_with(b"mdhd", 12, b"\0\0\0\1\x7f\xff\xff\xff"),
    "a box of gigabytes": lambda: m4a_with(b"moov", -8, b"\x7f\xff\xff\xff"),
    "8 channels at 96 kHz": lambda: contained("MKV FLAC", np.zeros((9_600_000, 8), "f4"), 96_000),
    "an hour of AAC": lambda: contained("AAC", np.zeros(3600 * 8000, "f4"), 8000),
    "ADTS and junk": lambda: FILES["AAC"] + np.random.default_rng(0).bytes(20 << 20),
    "WebM and junk": lambda: FILES["WEBM"] + np.random.default_rng(0).bytes(20 << 20),
    "empty ADTS frames": lambda: bytes.fromhex("fff1508000fffc") * (1 << 20),
    "nested boxes": lambda: b"\0\0\0\x10ftypM4A \0\0\0\0" + b"\0\x10\0\0moov" * 200_000,
}
QUICK = ("claims billions of packets", "claims long packets", "a box of gigabytes", "nested boxes")


@pytest.mark.parametrize("bomb", [name for name in BOMBS if LONG or name in QUICK])
def test_bombs(bomb: str) -> None:
    """A container that claims or holds too much takes little time and memory."""
    check_bomb(BOMBS[bomb]())


def test_lists_of_other_files(tmp_path: Path) -> None:
    """A file that FFmpeg would take for a playlist is refused, and what it names is not opened."""
    secret = tmp_path / "secret.m4a"
    secret.write_bytes(FILES["M4A"])
    os.utime(secret, (0, 0))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/x.m4a"
        for text in (
            f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{address}\n#EXT-X-ENDLIST\n",
            f"ffconcat version 1.0\nfile {secret}\n",
            f"concat:{secret}",
        ):
            with pytest.raises(ApiError, match="not readable as audio"):
                read_file(text.encode(), 60.0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert secret.stat().st_atime == 0


def test_only_sound_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A video stream beside the sound is not decoded, not even for its parameters."""
    opened: list[Any] = []

    def watched(*given: Any, **options: Any) -> Any:
        opened.append(av.open(*given, **options))
        stream = opened[-1].streams.video[0]
        opened.append((stream.type, stream.codec_context.pix_fmt))
        return opened[0]

    monkeypatch.setattr(container_decode, "av_open", watched)
    wave = speech(0.3, RATE)
    sound, rate_hz = container_decode.decode_container(with_video(wave, RATE), "matroska", 60.0)
    assert (rate_hz, len(sound) >= len(wave)) == (RATE, True)
    assert opened[1] == ("video", None)


def test_keys_stay_in_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that decodes files of clients gets no keys of the server's environment."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("MOSSLIVE_API_KEYS", "secret")
    assert "secret" not in child_environment().values()
    assert "PATH" in child_environment()
