"""Batches of rows on the device, with errors like those of live hearing.

All examples and all versions of what was heard are on the device; the host only chooses among them.
Heard codes come from any version and are dropped, doubled, masked or replaced at random. Knows
rows, not the model. Invariants: rows to be predicted and text are never changed; the host never
waits for the device.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mosslive.rows import RowIds
from recipes.bundled.bank import on_device
from recipes.bundled.lm_meant import NOTHING
from recipes.bundled.lm_rows import HEARD, PLAIN, SPEAK, WRITE, Examples

IGNORED = -100
_STEP_ROWS = 16  # lengths of batches are multiples of this
_SPARE_ROWS = 4  # for doubled codes where something is heard; longer rows are cut off
_STEP_PLACES = 256  # in a test, numbers of predictions are multiples of this
# In training all batches of a length have one number, a multiple of this, so that there are few
# shapes. Sampled batches differ: there is space for some standard deviations above the mean, and
# predictions beyond it are skipped.
_STEP_DRAWN = 1024
_SPREADS = 4


@dataclass(frozen=True)
class Mishearing:
    """Shares of the codes. A word is about five codes: words to repeat must mostly stay whole, or
    the model learns to guess."""

    dropped: float = 0.02
    doubled: float = 0.02
    masked: float = 0.04
    random: float = 0.02
    # Of the codes of a reply: the model learns to recover from one wrong code, and to use the
    # question, because a memorised start of a reply does not determine the rest.
    masked_reply: float = 0.1


class Wanted(NamedTuple):
    """The targets of one head and their rows; logits are computed only there. Padded to a multiple
    of the step size with ignored rows."""

    place: Tensor  # [N] in the batch's rows one after another: after this row
    value: Tensor  # [N], or IGNORED


class Batch(NamedTuple):
    text: Tensor  # [B, L]
    audio: Tensor
    write: Wanted
    speak: Wanted
    meant: Tensor  # [N, A] at the places of `speak`: letters of what is said, or IGNORED

    def tensors(self) -> list[Tensor]:
        parts = ([part] if isinstance(part, Tensor) else part for part in self)
        return [tensor for part in parts for tensor in part]

    def clone(self) -> "Batch":
        write, speak = (Wanted(*(t.clone() for t in part)) for part in (self.write, self.speak))
        return Batch(self.text.clone(), self.audio.clone(), write, speak, self.meant.clone())


Capacities = dict[int, tuple[int, int]]  # by length: for predictions of the text and the audio head


class Batches:
    def __init__(
        self,
        examples: Examples,
        codes: Tensor,  # [V, total]: all that was said, by version; on the device
        ids: RowIds,
        device: torch.device,
        rows: int,
        seed: int,
        capacities: Capacities | None = None,
    ) -> None:
        """`rows`: rows per batch, padding included. `capacities`: sizes of earlier sets of
        examples, raised where these need more, so that shapes stay the same."""
        self.ids, self.device, self._rows = ids, device, rows
        self.examples = examples
        self._text, self._audio, self._kind, self._code, self._meant = (
            torch.from_numpy(getattr(examples, name)).to(device)
            for name in ("text", "audio", "kind", "code", "meant")
        )
        self._codes = codes
        # Per example: rows, and predictions of either head; a batch's shapes follow from them.
        self._writes, self._speaks, heard = (
            np.add.reduceat(examples.kind == kind, examples.first, dtype=np.int64)
            for kind in (WRITE, SPEAK, HEARD)
        )
        spare = np.where(heard > 0, _SPARE_ROWS, 0)
        self._width = -(-(examples.count + spare) // _STEP_ROWS) * _STEP_ROWS
        self._buckets = [np.flatnonzero(self._width == width) for width in np.unique(self._width)]
        # A bucket is sampled by its share of the examples.
        per_batch = [self._batch_size(bucket) for bucket in self._buckets]
        needed = np.asarray([len(b) / n for b, n in zip(self._buckets, per_batch, strict=True)])
        self._weights = needed / needed.sum()
        self._capacities = {} if capacities is None else capacities
        for bucket, size in zip(self._buckets, per_batch, strict=True):
            width = int(self._width[bucket[0]])
            write, speak = self._capacities.get(width, (0, 0))
            self._capacities[width] = (
                max(write, _capacity(self._writes[bucket], size)),
                max(speak, _capacity(self._speaks[bucket], size)),
            )
        self._host = np.random.default_rng(seed)
        self.generator = torch.Generator(device).manual_seed(seed)

    def _batch_size(self, bucket: NDArray[np.int64]) -> int:
        return max(1, self._rows // int(self._width[bucket[0]]))

    def next(self, noise: Mishearing | None) -> Batch:
        bucket = self._buckets[int(self._host.choice(len(self._buckets), p=self._weights))]
        chosen = bucket[self._host.integers(len(bucket), size=self._batch_size(bucket))]
        return self._gather(chosen, self._capacities[int(self._width[bucket[0]])], noise)

    def all(self) -> Iterator[tuple[NDArray[np.int64], Batch]]:
        """Yields every example once, as recorded, by its number."""
        for bucket in self._buckets:
            step = self._batch_size(bucket)
            for begin in range(0, len(bucket), step):
                chosen = bucket[begin : begin + step]
                yield chosen, self.gather(chosen, None)

    def gather(self, chosen: NDArray[np.int64], noise: Mishearing | None) -> Batch:
        """Returns a batch with space for all predictions."""
        counts = (int(each[chosen].sum()) for each in (self._writes, self._speaks))
        return self._gather(chosen, [_whole(count, _STEP_PLACES) for count in counts], noise)

    def _gather(
        self, chosen: NDArray[np.int64], capacities: Sequence[int], noise: Mishearing | None
    ) -> Batch:
        width = int(self._width[chosen].max())
        examples = self.examples
        table = np.stack((examples.first[chosen], examples.count[chosen]))
        first, count = on_device(table, self.device)[..., None]
        place = torch.arange(width, device=self.device).expand(len(chosen), -1)
        if noise is not None:
            place = self._misplaced(first, count, place, noise)
        inside = place < count
        row = first + torch.minimum(place, count - 1)
        text = self._text[row].long()
        audio = self._audio[row].long()
        kind = torch.where(inside, self._kind[row], PLAIN)
        write, speak = (
            _wanted(values, kind == which, capacity)
            for values, which, capacity in zip(
                (text, audio), (WRITE, SPEAK), capacities, strict=True
            )
        )
        # The letters of the predicted row, which is the next one; the last row predicts nothing.
        said = row.flatten()[(speak.place + 1).clamp(max=row.numel() - 1)]
        meant = self._meant[said].long()
        missing = (speak.value == IGNORED)[:, None] | (meant == NOTHING)
        meant = torch.where(missing, IGNORED, meant)
        if noise is not None:
            audio = self._misheard(self._any_version(audio, row), kind, noise)
        return Batch(text, audio, write, speak, meant)

    def _any_version(self, audio: Tensor, row: Tensor) -> Tensor:
        """Returns the heard codes, from a version sampled for each example of the batch."""
        versions = len(self._codes)
        if versions == 1:
            return audio
        numbers = torch.randint(
            versions, (len(row), 1), generator=self.generator, device=self.device
        )
        at = self._code[row].long()
        return torch.where(at >= 0, self._codes[numbers, at.clamp(min=0)].long(), audio)

    def _misplaced(self, first: Tensor, count: Tensor, place: Tensor, noise: Mishearing) -> Tensor:
        """Returns, for each row of the batch, which row of its example it is."""
        row = first + torch.minimum(place, count - 1)
        heard = (self._kind[row] == HEARD) & (place < count)
        numbers = torch.rand(place.shape, generator=self.generator, device=self.device)
        times = torch.where(numbers < noise.dropped, 0, 1)
        times = torch.where(numbers > 1 - noise.doubled, 2, times)
        until = torch.where(heard, times, 1).cumsum(1)
        return torch.searchsorted(until, place.contiguous(), right=True)

    def _misheard(self, audio: Tensor, kind: Tensor, noise: Mishearing) -> Tensor:
        numbers = torch.rand(audio.shape, generator=self.generator, device=self.device)
        others = torch.randint(
            0, self.ids.eosp, audio.shape, generator=self.generator, device=self.device
        )
        mask = self.ids.eosp + 1  # above the end of speech: never legal, so free for this use
        heard = kind == HEARD
        audio = torch.where(heard & (numbers < noise.masked), mask, audio)
        audio = torch.where(heard & (numbers > 1 - noise.random), others, audio)
        own = (kind == SPEAK) & (audio != self.ids.eosp)
        return torch.where(own & (numbers < noise.masked_reply), mask, audio)


def _capacity(counts: NDArray[np.int64], size: int) -> int:
    """Returns the space for the predictions of `size` examples sampled from those with these
    counts."""
    most = size * counts.mean() + _SPREADS * size**0.5 * counts.std()
    return _whole(int(min(most, size * counts.max())), _STEP_DRAWN)


def _whole(count: int, step: int) -> int:
    return max(1, -(-count // step)) * step  # never empty, because some kernels fail on empty input


def _wanted(values: Tensor, wanted: Tensor, capacity: int) -> Wanted:
    """[B, L] each: the next row where it is a target. Returns the first `capacity` targets;
    the host knows that number, so no shape is read back."""
    after = torch.full_like(values, IGNORED)
    after[:, :-1] = torch.where(wanted[:, 1:], values[:, 1:], IGNORED)
    after = after.flatten()
    counts = after != IGNORED
    # Each target gets its number; ignored rows, and targets without space, go to one place past
    # the end.
    number = torch.where(counts, counts.cumsum(0) - 1, capacity).clamp(max=capacity)
    place = torch.full((capacity + 1,), len(after) - 1, device=values.device)  # no row follows
    place.scatter_(0, number, torch.arange(len(after), device=values.device))
    place = place[:capacity]
    return Wanted(place, after[place])
