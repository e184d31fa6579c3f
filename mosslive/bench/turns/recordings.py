"""Recordings of sessions in which it is known where each turn ends and where it only pauses.

A recording can come with its labels. Or sessions are made from utterances of one speaker: silence
is inserted inside an utterance, at its quietest places, or between spoken words that were recorded
one by one. Such pauses are harder than real ones: the voice does not hesitate before them. Pure
functions of sound and a seed. Knows no detector.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mosslive.codec import read_sound
from mosslive.codec.resample import resample
from mosslive.errors import MossliveError
from mosslive.talk.vad import VAD_HZ

Wave = NDArray[np.float32]

# A turn has no pause, one or two, with these shares. Half of all pauses are longer than the median;
# one of twenty is more than twice as long.
PAUSE_COUNTS = (0.6, 0.3, 0.1)
PAUSE_MEDIAN_S, PAUSE_SPREAD, PAUSE_MOST_S = 0.45, 0.5, 2.0
GAP_S = 3.0  # after a turn: longer than any rule waits
TURNS = 4  # of a session: the adaptive rule learns from the earlier ones
WORDS = (2, 5)  # of a turn that is joined from words, least and most
_WORD_GAP_S = 0.06  # between two of them
_NOISE = 3e-4  # -70 dB: no microphone is silent
_EDGE_S = 0.005  # sound fades over this time where silence is inserted
_WINDOW_S = 0.03  # whose loudness decides where a place is quiet
_SILENT = 0.05  # of an utterance's loudest window: quieter ends are cut off
_SUFFIXES = (".wav", ".flac", ".ogg")


@dataclass(frozen=True)
class KnownTurn:
    """Samples at 16 kHz."""

    start: int
    end: int  # of its speech
    pauses: int = 0  # how many were inserted


@dataclass(frozen=True)
class Session:
    """One speaker."""

    name: str
    wave: Wave  # [n] at 16 kHz
    turns: tuple[KnownTurn, ...]


@dataclass(frozen=True)
class Speaker:
    """Utterances, each a whole turn; or words, several of which make one."""

    name: str
    utterances: Sequence[Wave]  # at 16 kHz
    words: bool = False


def make_sessions(speakers: Sequence[Speaker], turns: int, seed: int = 0) -> list[Session]:
    """About `turns` turns, equally many of each speaker, in sessions of `TURNS`."""
    if not speakers:
        return []
    chance = np.random.default_rng(seed)
    each = max(1, math.ceil(turns / TURNS / len(speakers)))
    return [make_session(speaker, chance) for speaker in speakers for _ in range(each)]


def make_session(speaker: Speaker, chance: np.random.Generator) -> Session:
    pieces, turns = [_silence(1.0)], list[KnownTurn]()
    for _ in range(TURNS):
        count = int(chance.choice(len(PAUSE_COUNTS), p=PAUSE_COUNTS))
        wave, pauses = _turn(speaker, count, chance)
        start = sum(map(len, pieces))
        turns.append(KnownTurn(start, start + len(wave), pauses))
        pieces += [wave, _silence(GAP_S)]
    whole = np.concatenate(pieces)
    whole += _NOISE * chance.standard_normal(len(whole)).astype(np.float32)
    return Session(speaker.name, whole, tuple(turns))


def read_folder(folder: Path) -> tuple[list[Speaker], list[Session]]:
    """Every recording in a folder is one utterance. With a JSON file of the same name it is a
    session with known turns, `{"turns": [[start_s, end_s], ...]}`, or the words of one speaker,
    `{"clips": [{"start": sample, "samples": count}, ...]}`."""
    paths = [path for path in sorted(folder.glob("*")) if path.suffix in _SUFFIXES]
    if not paths:
        raise MossliveError(f"{folder} has no recordings; allowed: {', '.join(_SUFFIXES)} files")
    speakers, sessions = list[Speaker](), list[Session]()
    for path in paths:
        name, sound = path.name.partition(".")[0], read_sound(path)
        labels = _labels(path.with_name(f"{name}.json"))
        if "clips" in labels:
            ranges = [(clip["start"], clip["start"] + clip["samples"]) for clip in labels["clips"]]
            words = [sound.wave[first:end] for first, end in ranges]
            spoken = [trimmed(_at_16_khz(word, sound.rate_hz)) for word in words]
            speakers.append(Speaker(name, spoken, words=True))
        elif "turns" in labels:
            samples = [[round(second * VAD_HZ) for second in turn] for turn in labels["turns"]]
            known = tuple(KnownTurn(*turn) for turn in samples)
            sessions.append(Session(name, _at_16_khz(sound.wave, sound.rate_hz), known))
        else:
            utterance = trimmed(_at_16_khz(sound.wave, sound.rate_hz))
            speakers.append(Speaker(name, [utterance]))
    return speakers, sessions


def _labels(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MossliveError(f"{path} is not readable as JSON: {error}") from None
    if not isinstance(read, dict) or not {"clips", "turns"} & set(read):
        raise MossliveError(f"{path} has neither clips nor turns; see docs/talk.md")
    return read


def trimmed(wave: Wave) -> Wave:
    """Without the silence before and after it."""
    loud = np.flatnonzero(_loudness(wave) > _SILENT * _loudness(wave).max())
    window = round(_WINDOW_S * VAD_HZ)
    return wave[loud[0] * window : (loud[-1] + 1) * window] if len(loud) else wave


def quiet_places(wave: Wave, count: int) -> list[int]:
    """At most `count` quietest samples of an utterance, in order: not near its ends and not near
    each other."""
    window, level = round(_WINDOW_S * VAD_HZ), _loudness(wave)
    far = max(1, round(0.3 / _WINDOW_S))
    level[: max(far, len(level) // 6)] = level[-max(far, len(level) // 6) :] = math.inf
    places = list[int]()
    while len(places) < count and level.min(initial=math.inf) < math.inf:
        quietest = int(level.argmin())
        places.append(quietest * window + window // 2)
        level[max(0, quietest - far) : quietest + far + 1] = math.inf
    return sorted(places)


def _turn(speaker: Speaker, pauses: int, chance: np.random.Generator) -> tuple[Wave, int]:
    if speaker.words:
        words = int(chance.integers(WORDS[0], WORDS[1] + 1))
        chosen = chance.choice(len(speaker.utterances), words)
        parts = [speaker.utterances[index] for index in chosen]
        long = set(chance.permutation(words - 1)[:pauses].tolist())
        gaps = [_pause_s(chance) if index in long else _WORD_GAP_S for index in range(words - 1)]
        pauses = len(long)
    else:
        wave = speaker.utterances[int(chance.integers(len(speaker.utterances)))]
        parts = np.split(wave, quiet_places(wave, pauses))
        gaps = [_pause_s(chance) for _ in parts[1:]]
        pauses = len(gaps)
    joined = [_faded(parts[0])]
    for part, gap_s in zip(parts[1:], gaps, strict=True):
        joined += [_silence(gap_s), _faded(part)]
    return np.concatenate(joined), pauses


def _pause_s(chance: np.random.Generator) -> float:
    return min(PAUSE_MOST_S, float(PAUSE_MEDIAN_S * np.exp(PAUSE_SPREAD * chance.normal())))


def _silence(seconds: float) -> Wave:
    return np.zeros(round(seconds * VAD_HZ), np.float32)


def _faded(part: Wave) -> Wave:
    edge = min(round(_EDGE_S * VAD_HZ), len(part) // 2)
    ramp = np.linspace(0, 1, edge, dtype=np.float32)
    faded = part.copy()
    faded[:edge] *= ramp
    faded[len(part) - edge :] *= ramp[::-1]
    return faded


def _loudness(wave: Wave) -> NDArray[np.float64]:
    """Of each whole window."""
    window = round(_WINDOW_S * VAD_HZ)
    rows = wave[: len(wave) // window * window].reshape(-1, window)
    loudness: NDArray[np.float64] = np.sqrt(np.mean(rows.astype(np.float64) ** 2, axis=1))
    return loudness


def _at_16_khz(wave: torch.Tensor, rate_hz: int) -> Wave:
    made: Wave = resample(wave, rate_hz, VAD_HZ).numpy()
    return made
