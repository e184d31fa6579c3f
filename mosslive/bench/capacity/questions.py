"""Spoken questions of any length, made from a recording that voice activity detection hears.

Synthetic tones are not detected as speech, so questions are the recording itself: repeated to the
wanted length, faster or slower by up to a tenth, louder or softer. Silence at both ends is cut, so
that the last sample of a question is the last sample of speech. Packets are encoded once and sent
by many callers. Knows no network.
"""

import base64
import json
import wave as wave_files
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from mosslive.bench.capacity.load import Load, question_lengths
from mosslive.config.folders import shipped_folder
from mosslive.errors import MossliveError

RATE_HZ = 24_000
PACKET_S = 0.02
PACKET = round(PACKET_S * RATE_HZ)  # samples
Samples = NDArray[np.int16]
_SOFT = 0.02  # of the largest amplitude; below it is silence
_RECORDING = "question.flac"


class NoRecording(MossliveError):
    """There is no recording to make questions from."""


def make_questions(load: Load, recording: Path | None = None) -> list[Samples]:
    """`recording`: a file of speech without pauses; None: the one that ships with the package."""
    said = _read(recording or shipped_folder() / _RECORDING)
    questions = []
    for number, seconds in enumerate(question_lengths(load)):
        chance = Random(f"{load.seed}/question {number}")
        count = PACKET * max(1, round(seconds / PACKET_S))
        speed, gain = chance.uniform(0.9, 1.1), chance.uniform(0.6, 1.0)
        places = np.arange(round(len(said) / speed)) * speed
        varied = np.interp(places, np.arange(len(said)), said)
        # The end of the recording is the end of the question: speech that is cut in the middle of
        # a vowel sounds longer to a detector.
        whole = np.resize(varied[::-1], count)[::-1]
        questions.append((gain * whole * 32767).astype(np.int16))
    return questions


def packets(question: Samples) -> list[Samples]:
    return [question[first : first + PACKET] for first in range(0, len(question), PACKET)]


def silence() -> Samples:
    """One packet of faint noise, as from a microphone in a quiet room."""
    return np.random.default_rng(0).integers(-3, 4, PACKET).astype(np.int16)


def frame(packet: Samples) -> str:
    """The client event that sends a packet."""
    sound = base64.b64encode(packet.astype("<i2").tobytes()).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": sound})


@dataclass(frozen=True)
class Frames:
    """All events with sound, encoded once: by question and packet, and one of silence."""

    questions: list[list[str]]
    silence: str

    @classmethod
    def of(cls, questions: list[Samples]) -> "Frames":
        return cls([[frame(one) for one in packets(q)] for q in questions], frame(silence()))


def save(path: Path, questions: list[Samples]) -> None:
    np.savez(path, *questions)


def load_file(path: Path) -> list[Samples]:
    with np.load(path) as stored:
        return [stored[f"arr_{number}"] for number in range(len(stored.files))]


def _read(path: Path) -> NDArray[np.float64]:
    """Samples at `RATE_HZ` without silence at the ends; the largest amplitude is 1."""
    if not path.is_file():
        raise NoRecording(f"{path}: no such file; give a recording of speech with --recording")
    samples, rate_hz = _read_wav(path) if path.suffix == ".wav" else _read_any(path)
    if rate_hz != RATE_HZ:
        count = round(len(samples) * RATE_HZ / rate_hz)
        places = np.arange(count) * rate_hz / RATE_HZ
        samples = np.interp(places, np.arange(len(samples)), samples)
    loudest = float(np.abs(samples).max(initial=0.0))
    if not loudest:
        raise NoRecording(f"{path}: silent; give a recording of speech with --recording")
    samples = samples / loudest
    (loud,) = np.nonzero(np.abs(samples) > _SOFT)
    return samples[loud[0] : loud[-1] + 1]


def _read_wav(path: Path) -> tuple[NDArray[np.float64], int]:
    """16-bit WAV, without other packages."""
    try:
        with wave_files.open(str(path), "rb") as file:
            if file.getsampwidth() != 2:
                raise NoRecording(f"{path}: {8 * file.getsampwidth()} bits a sample; allowed: 16")
            raw = np.frombuffer(file.readframes(file.getnframes()), "<i2")
            return raw[:: file.getnchannels()] / 32768.0, file.getframerate()
    except (wave_files.Error, EOFError) as error:
        raise NoRecording(f"{path}: not readable as WAV: {error}") from None


def _read_any(path: Path) -> tuple[NDArray[np.float64], int]:
    try:
        import soundfile  # noqa: F401 - `read_sound` needs it
    except ImportError:
        raise NoRecording(
            f"{path}: reading it needs soundfile, which is not installed; give a 16-bit WAV file "
            f"with --recording, or pip install 'mosslive[voice]'"
        ) from None
    from mosslive.codec.sound import read_sound

    sound = read_sound(path)
    return sound.wave.numpy().astype(np.float64), sound.rate_hz
