"""Batches of rows on the device, misheard as live speech is.

All examples lie on the device; the host only says which. Codes that were heard are dropped, said
twice, masked or replaced at random. Knows rows, not the model. Invariant: rows to be predicted, and
everything written, are never changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.rows import RowIds
from recipes.bundled.bank import on_device
from recipes.bundled.lm_rows import HEARD, PLAIN, SPEAK, WRITE, Examples

IGNORED = -100
_STEP_ROWS = 32  # lengths of batches are multiples of this
_ROOM_ROWS = 8  # for codes said twice


@dataclass(frozen=True)
class Mishearing:
    dropped: float = 0.03
    doubled: float = 0.03
    masked: float = 0.09
    random: float = 0.03
    masked_reply: float = 0.02  # of the codes of a reply, so that one slip is not the end of it


class Batch(NamedTuple):
    text: Tensor  # [B, L]
    audio: Tensor
    write: Tensor  # what the text head should say after each row, or IGNORED
    speak: Tensor  # the same for the audio head


class Batches:
    def __init__(
        self, examples: Examples, ids: RowIds, device: torch.device, rows: int, seed: int
    ) -> None:
        """`rows`: how many of them one batch holds, padding included."""
        self.ids, self.device, self._rows = ids, device, rows
        self._text, self._audio = (
            torch.from_numpy(each).to(device) for each in (examples.text, examples.audio)
        )
        self._kind = torch.from_numpy(examples.kind).to(device)
        self._first, self._count = examples.first, examples.count
        steps = -(-examples.count // _STEP_ROWS)
        self._buckets = [np.flatnonzero(steps == step) for step in np.unique(steps)]
        # A bucket is drawn as often as its share of the examples asks for.
        per_batch = [self._batch_rows(bucket) for bucket in self._buckets]
        needed = np.asarray([len(b) / n for b, n in zip(self._buckets, per_batch, strict=True)])
        self._weights = needed / needed.sum()
        self._host = np.random.default_rng(seed)
        self.draws = torch.Generator(device).manual_seed(seed)

    def _batch_rows(self, bucket: NDArray[np.int64]) -> int:
        width = int(self._count[bucket].max())
        return max(1, self._rows // (-(-width // _STEP_ROWS) * _STEP_ROWS))

    def next(self, noise: Mishearing | None) -> Batch:
        bucket = self._buckets[int(self._host.choice(len(self._buckets), p=self._weights))]
        chosen = bucket[self._host.integers(len(bucket), size=self._batch_rows(bucket))]
        return self.gather(chosen, noise)

    def all(self) -> Iterator[Batch]:
        """Every example once, as it was heard."""
        for bucket in self._buckets:
            step = self._batch_rows(bucket)
            for begin in range(0, len(bucket), step):
                yield self.gather(bucket[begin : begin + step], None)

    def gather(self, chosen: NDArray[np.int64], noise: Mishearing | None) -> Batch:
        width = int(-(-self._count[chosen].max() // _STEP_ROWS) * _STEP_ROWS)
        first = on_device(self._first[chosen], self.device)[:, None]
        count = on_device(self._count[chosen], self.device)[:, None]
        place = torch.arange(width + (_ROOM_ROWS if noise else 0), device=self.device)
        place = place.expand(len(chosen), -1)
        if noise is not None:
            place = self._misplaced(first, count, place, noise)
        inside = place < count
        row = first + torch.minimum(place, count - 1)
        text = self._text[row].long()
        audio = self._audio[row].long()
        kind = torch.where(inside, self._kind[row], PLAIN)
        write = self._following(text, kind == WRITE)
        speak = self._following(audio, kind == SPEAK)
        if noise is not None:
            audio = self._misheard(audio, kind, noise)
        return Batch(text, audio, write, speak)

    def _misplaced(self, first: Tensor, count: Tensor, place: Tensor, noise: Mishearing) -> Tensor:
        """For each row of the batch, which row of its example it is."""
        row = first + torch.minimum(place, count - 1)
        heard = (self._kind[row] == HEARD) & (place < count)
        drawn = torch.rand(place.shape, generator=self.draws, device=self.device)
        times = torch.where(drawn < noise.dropped, 0, 1)
        times = torch.where(drawn > 1 - noise.doubled, 2, times)
        until = torch.where(heard, times, 1).cumsum(1)
        return torch.searchsorted(until, place.contiguous(), right=True)

    def _misheard(self, audio: Tensor, kind: Tensor, noise: Mishearing) -> Tensor:
        drawn = torch.rand(audio.shape, generator=self.draws, device=self.device)
        others = torch.randint(
            0, self.ids.eosp, audio.shape, generator=self.draws, device=self.device
        )
        mask = self.ids.eosp + 1  # above the end of speech: never legal, so free to mean this
        heard = kind == HEARD
        audio = torch.where(heard & (drawn < noise.masked), mask, audio)
        audio = torch.where(heard & (drawn > 1 - noise.random), others, audio)
        own = (kind == SPEAK) & (audio != self.ids.eosp)
        return torch.where(own & (drawn < noise.masked_reply), mask, audio)

    @staticmethod
    def _following(values: Tensor, wanted: Tensor) -> Tensor:
        """What stands in the next row, where it is wanted."""
        after = torch.full_like(values, IGNORED)
        after[:, :-1] = torch.where(wanted[:, 1:], values[:, 1:], IGNORED)
        return after
