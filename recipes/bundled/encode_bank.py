"""Encodes the bank, and renders the assistant's speech through the codec again.

The language model and the vocoder train on the results. Knows the trained codec, not how it was
trained. Invariant: every utterance is encoded separately from position 0, like a live turn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.kernels.arithmetic import arithmetic
from recipes.bundled.augment import Augment, augmented_features, features
from recipes.bundled.bank import HEARD_SAMPLES, Bank
from recipes.bundled.budget import save_whole
from recipes.bundled.codec_model import CodecModel

_BATCH_CODES = 16_384
_CACHED_CODES = 1024  # on a CPU: more do not fit its cache
_SPEAK_CODES = 75
_SPEAK_ROWS = 128


@dataclass(frozen=True)
class Spoken:
    """Codes of all utterances, in several versions; version 0 is as recorded."""

    codes: list[NDArray[np.int16]]  # by version: all utterances one after another
    first: NDArray[np.int64]  # [U]
    count: NDArray[np.int64]  # [U]

    def of(self, utterance: int, version: int = 0) -> NDArray[np.int16]:
        begin = int(self.first[utterance])
        return self.codes[version][begin : begin + int(self.count[utterance])]

    def on(self, device: torch.device, versions: int | None = None) -> Tensor:
        """[V, total]: the codes of the first versions, by default all."""
        return torch.from_numpy(np.stack(self.codes[:versions])).to(device)


def save_spoken(spoken: Spoken, path: Path) -> None:
    content = {
        "codes": [torch.from_numpy(each) for each in spoken.codes],
        "first": torch.from_numpy(spoken.first),
        "count": torch.from_numpy(np.asarray(spoken.count)),
    }
    save_whole(content, path)


def load_spoken(path: Path) -> Spoken:
    held = torch.load(path, map_location="cpu", weights_only=True)
    codes = [each.numpy() for each in held["codes"]]
    return Spoken(codes, held["first"].numpy(), held["count"].numpy())


class Source(Protocol):
    """The sound to encode: a `Bank`, or a corpus that is never in memory as a whole."""

    @property
    def device(self) -> torch.device: ...

    @property
    def count(self) -> NDArray[np.int64]: ...  # [U]: codes

    def where(self, role: str, split: str) -> NDArray[np.int64]: ...

    def waves(self, group: NDArray[np.int64]) -> Tensor: ...  # [B, (W + 1) · 1280]


@torch.no_grad()
def encode_bank(
    model: CodecModel,
    source: Source,
    versions: int,
    how: Augment,
    seed: int = 11,
    done: Callable[[int], object] = lambda utterances: None,
) -> Spoken:
    """Makes version 0 and the others, which are augmented and start anywhere within a code. The
    others are made only of what users say in training; elsewhere they equal version 0. Calls `done`
    with the number of utterances encoded, each version separately."""
    order = np.argsort(source.count, kind="stable")
    first = np.cumsum(source.count) - source.count
    recorded = np.zeros(int(source.count.sum()), np.int16)
    generator = torch.Generator(source.device).manual_seed(seed)

    def fill(
        version: int, group: NDArray[np.int64], wave: Tensor, found: NDArray[np.int16]
    ) -> None:
        codes = _codes(model, wave, version, how, generator).cpu().numpy()
        for row, utterance in zip(codes, group, strict=True):
            count, begin = int(source.count[utterance]), int(first[utterance])
            found[begin : begin + count] = row[:count]
        done(len(group))

    # Version 0 has exactly the codes of the package: full precision. The others use half
    # precision for speed, which changes a few codes, like noise. No convolution benchmarks in
    # either, because every group has another length.
    with arithmetic("fp32"):
        for group in _groups(order, source):
            fill(0, group, source.waves(group), recorded)
    changed = [recorded.copy() for _ in range(1, versions)]
    heard = np.isin(order, source.where("user", "train"))
    with arithmetic("tf32"):
        for group in _groups(order[heard], source):
            wave = source.waves(group)
            for number, found in enumerate(changed):
                fill(number + 1, group, wave, found)
    return Spoken([recorded, *changed], first, source.count)


def _codes(
    model: CodecModel, wave: Tensor, version: int, how: Augment, generator: torch.Generator
) -> Tensor:
    """wave [B, (W + 1) · 1280] → codes [B, W] int16."""
    length = wave.shape[1] - HEARD_SAMPLES
    if not version:
        heard = features(wave[:, :length])
    else:
        start = torch.randint(
            0, HEARD_SAMPLES, (len(wave), 1), generator=generator, device=wave.device
        )
        moved = wave.gather(1, start + torch.arange(length, device=wave.device))
        heard = augmented_features(moved, how, generator)
    with torch.autocast(wave.device.type, torch.bfloat16, enabled=version > 0):
        states = model.hear(heard).states
    return model.quantiser.nearest(states).to(torch.int16)


def _groups(order: NDArray[np.int64], source: Source) -> list[NDArray[np.int64]]:
    """Groups utterances of similar length, as many codes as suit the device."""
    count = source.count
    most = _CACHED_CODES if source.device.type == "cpu" else _BATCH_CODES
    groups, begin = [], 0
    for end in range(1, len(order) + 1):
        full = end == len(order) or (end + 1 - begin) * int(count[order[end]]) > most
        if full:
            groups.append(order[begin:end])
            begin = end
    return groups


@torch.no_grad()
def rendered_mel(model: CodecModel, bank: Bank, spoken: Spoken) -> Tensor:
    """Returns the mel of the assistant's codes as the flow renders it live: [A, 4, 80] float16, at
    the positions of the bank's own mel."""
    codes = np.zeros(bank.assistant_codes, np.int64)
    for index, utterance in enumerate(bank.utterances):
        if utterance.role == "assistant":
            begin = int(bank.first[index])
            codes[begin : begin + int(bank.count[index])] = spoken.of(index)
    rows = -(-len(codes) // _SPEAK_CODES)
    table = torch.from_numpy(np.pad(codes, (0, rows * _SPEAK_CODES - len(codes))))
    table = table.view(rows, _SPEAK_CODES).to(bank.device)
    made = []
    for group in torch.split(table, _SPEAK_ROWS):
        mel = model.speak(model.quantiser.codebook[group], chunk=5)  # [B, 80, 4W]
        made.append(mel.mT.half())
    mel = torch.cat(made).reshape(rows * _SPEAK_CODES, 4, -1)
    return mel[: bank.assistant_codes]
