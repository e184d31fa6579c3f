"""All speech of a corpus on the device, laid out in whole codes.

Every utterance begins on a code and is followed by silence, so a row of training data is a list of
code indices: sound, mel and pitch of the row are one gather each, and no row cuts a word. Knows no
networks. Invariants: code 0 and the last code are silent; the assistant's utterances come first, in
one piece.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from mosslive.codec.mel import FLOW_MEL, log_mel
from mosslive.codec.resample import resample
from mosslive.kernels.arithmetic import arithmetic
from recipes.bundled.corpus import SAMPLE_RATE_HZ, Corpus, Utterance
from recipes.bundled.layout import CODE_SAMPLES, lay_out
from recipes.bundled.pitch import pitch_hz

HEARD_SAMPLES = 1280  # the same 80 ms at 16 kHz
FRAMES = 4  # mel frames per code
_HEARD_HZ = 16_000
_PIECE_CODES = 4096
_MOST_BEFORE, _MOST_AFTER = 5, 8  # codes of silence around a user's turn


@dataclass(frozen=True)
class Bank:
    sound: Tensor  # [C, 1920] int16, 24 kHz
    heard: Tensor  # [C, 1280] int16, 16 kHz
    mel: Tensor  # [A, 4, 80] float16: of the assistant's codes only
    pitch: Tensor  # [A, 4] float16 Hz, 0 where there is no voice
    first: NDArray[np.int64]  # [U]: code where an utterance begins
    count: NDArray[np.int64]  # [U]: codes it takes
    utterances: list[Utterance]

    @property
    def assistant_codes(self) -> int:
        return self.mel.shape[0]

    @property
    def device(self) -> torch.device:
        return self.sound.device

    def waves(self, group: NDArray[np.int64]) -> Tensor:
        """Returns the sound of these utterances: [B, (W + 1) · 1280] for the longest one's W
        codes."""
        width = int(self.count[group].max())
        place = np.minimum(self.first[group][:, None] + np.arange(width + 1), len(self.sound) - 1)
        # Silence after the end of an utterance, not its neighbour in the bank.
        place[np.arange(width + 1) >= self.count[group][:, None]] = 0
        return self.heard[torch.from_numpy(place).to(self.device)].flatten(1).float() / 32768

    def where(self, role: str, split: str) -> NDArray[np.int64]:
        """Returns the indices of the utterances of a role and a split."""
        found = [n for n, u in enumerate(self.utterances) if (u.role, u.split) == (role, split)]
        return np.asarray(found, dtype=np.int64)


@arithmetic("fp32")  # the resampler's arithmetic affects codes
def load_bank(corpus: Corpus, device: torch.device) -> Bank:
    """Loads a corpus. Utterances keep their corpus index; only their positions in the bank are
    sorted."""
    order = sorted(corpus.utterances, key=lambda u: (u.role != "assistant", u.id))
    first = np.zeros(len(order), np.int64)
    count = np.zeros(len(order), np.int64)
    pieces: list[NDArray[np.int16]] = [np.zeros(CODE_SAMPLES, np.int16)]
    at = 1
    spoken_codes = 1
    for utterance in order:
        pieces.append(laid_out(corpus, utterance))
        first[utterance.id], count[utterance.id] = at, len(pieces[-1]) // CODE_SAMPLES
        at += int(count[utterance.id])
        if utterance.role == "assistant":
            spoken_codes = at
    pieces.append(np.zeros(CODE_SAMPLES, np.int16))
    sound = torch.from_numpy(np.concatenate(pieces)).view(-1, CODE_SAMPLES).to(device)
    heard = _by_pieces(sound, _heard_piece, sound.shape[0])
    mel = _by_pieces(sound, _mel_piece, spoken_codes)
    pitch = _by_pieces(sound, _pitch_piece, spoken_codes)
    return Bank(sound, heard, mel, pitch, first, count, corpus.utterances)


def laid_out(corpus: Corpus, utterance: Utterance, later: int = 0) -> NDArray[np.int16]:
    """Returns the sound of an utterance in whole codes. A user's turn has the silence of a live
    one: some before the first word, and some after the last, because the end of a turn is detected
    late. The assistant starts at once, or `later` samples later, less than a code."""
    spoken = lay_out(corpus.pcm(utterance), utterance.role, later)
    if utterance.role == "assistant":
        return spoken
    generator = np.random.default_rng(utterance.id)
    before, after = (int(generator.integers(most + 1)) for most in (_MOST_BEFORE, _MOST_AFTER))
    return np.pad(spoken, (before * CODE_SAMPLES, after * CODE_SAMPLES))


def _by_pieces(sound: Tensor, make: Callable[[Tensor], Tensor], codes: int) -> Tensor:
    """Runs `make` over the first `codes` codes, a few thousand at a time, each piece with one code
    of context on both sides."""
    made = []
    for begin in range(0, codes, _PIECE_CODES):
        end = min(begin + _PIECE_CODES, codes)
        before, after = min(begin, 1), min(sound.shape[0] - end, 1)
        wave = sound[begin - before : end + after].flatten().float() / 32768
        wave = F.pad(wave, ((1 - before) * CODE_SAMPLES, (1 - after) * CODE_SAMPLES))
        made.append(make(wave)[1:-1])
    return torch.cat(made)


def _heard_piece(wave: Tensor) -> Tensor:
    return as_heard(wave).view(-1, HEARD_SAMPLES)


def as_heard(wave: Tensor) -> Tensor:
    """[..., n] at 24 kHz → [..., n · 2 / 3] int16 at 16 kHz."""
    low = resample(wave, SAMPLE_RATE_HZ, _HEARD_HZ)
    return (low * 32768).round().clamp(-32768, 32767).to(torch.int16)


def _mel_piece(wave: Tensor) -> Tensor:
    return log_mel(wave, FLOW_MEL).T.reshape(-1, FRAMES, FLOW_MEL.bands).half()


def _pitch_piece(wave: Tensor) -> Tensor:
    return pitch_hz(wave).view(-1, FRAMES).half()


@dataclass(frozen=True)
class Rows:
    """A batch of rows of W codes, as planned on the host."""

    codes: NDArray[np.int64]  # [B, W + 1]: one more, so that a row can begin inside a code
    phones: NDArray[np.int64]  # [B, P], 0 where there is none
    phone_counts: NDArray[np.int64]  # [B]


def plan_rows(
    bank: Bank,
    among: NDArray[np.int64],
    phones: list[NDArray[np.int64]],
    rows: int,
    width: int,
    generator: np.random.Generator,
) -> Rows:
    """Samples whole utterances from `among` one after another while they fit, then fills with
    silence. phones: of every utterance, numbered from 1."""
    codes = np.zeros((rows, width + 1), np.int64)
    said: list[NDArray[np.int64]] = []
    picks = among[generator.integers(len(among), size=(rows, 8))]
    for row in range(rows):
        at = int(generator.integers(0, 3))
        heard = []
        for chosen in picks[row]:
            length = int(bank.count[chosen])
            if at + length > width:
                continue
            codes[row, at : at + length] = np.arange(length) + bank.first[chosen]
            heard.append(phones[chosen])
            at += length
        said.append(np.concatenate(heard) if heard else np.zeros(0, np.int64))
    counts = np.asarray([len(each) for each in said])
    table = np.zeros((rows, max(1, int(counts.max()))), np.int64)
    for row, each in enumerate(said):
        table[row, : len(each)] = each
    return Rows(codes, table, counts)


def on_device(values: NDArray[np.int64], device: torch.device) -> Tensor:
    held = torch.from_numpy(values)
    return held.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else held
