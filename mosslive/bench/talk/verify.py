"""Verifies the replies of conversations: what was heard, and how its answer sounds.

Every reply is rendered again in a batch with other companions than it had live, and a few are
rendered alone, which a batch must equal. Batches keep the time of verification small beside that of
the conversations. Runs on the codec's thread. Knows no clock except for the end of a reply.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from mosslive.bench.codec.check import LEAST_SAME
from mosslive.bench.talk.random_codec import MICROPHONE_HZ, RandomCodec
from mosslive.bench.verified import NotVerified
from mosslive.codec import Voice
from mosslive.codec.flow_stream import TailRule
from mosslive.config import SECONDS_PER_CODE
from mosslive.rows import Row, RowIds
from mosslive.talk.timing import TurnTiming

LEAST_COSINE = 0.99  # of a reply's sound with its codes rendered again; half precision, long phases
ALONE = 4  # replies of each level that are rendered alone
_MOST_TOGETHER = 64  # replies that are rendered again in one batch
_SAMPLES = 1920  # of a code
Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Answered:
    """One question and its reply."""

    asked: Samples
    user_rows: tuple[Row, ...]
    reply_rows: tuple[Row, ...]
    sound: Samples
    timing: TurnTiming


class _Settings(Protocol):
    @property
    def reply_codes(self) -> int: ...
    @property
    def tail(self) -> TailRule: ...


class Verifier:
    """Raises `NotVerified` for a wrong reply."""

    def __init__(self, codec: RandomCodec, voice: Voice, ids: RowIds, settings: _Settings) -> None:
        self._codec, self._voice, self._ids, self._settings = codec, voice, ids, settings

    def groups(self, answered: list[Answered]) -> Iterator[list[Answered]]:
        """Replies to render together, as many as fit into the pool. Neighbours in the list ran at
        the same time, so groups take them far apart."""
        fits = int(self._codec.pool_seconds // (self._settings.reply_codes * SECONDS_PER_CODE + 1))
        count = -(-len(answered) // max(1, min(fits - 1, _MOST_TOGETHER)))
        for number in range(count):
            yield answered[number::count]

    def check_heard(self, one: Answered) -> None:
        """The codes heard against the offline encoder, and the form of the sound."""
        expected = self._codec.encode(torch.from_numpy(one.asked), MICROPHONE_HZ)
        heard = self._codes(one.user_rows)
        if len(heard) != len(expected):
            raise NotVerified(f"{len(heard)} codes heard; the offline encoder has {len(expected)}")
        same = float(np.mean(np.array(expected) == np.array(heard)))
        if same < LEAST_SAME:
            raise NotVerified(
                f"{same:.1%} of the codes heard equal the offline encoder's; {LEAST_SAME:.0%} must"
            )
        codes, sound = self._codes(one.reply_rows), one.sound
        if len(codes) != self._settings.reply_codes or len(sound) != _SAMPLES * len(codes):
            raise NotVerified(f"{len(sound)} samples for {len(codes)} codes")
        if not np.isfinite(sound).all() or float(sound.std()) < 1e-6:
            raise NotVerified("the sound is silent or not finite")

    def check_together(self, group: list[Answered]) -> None:
        """The sound against the same codes rendered in one batch."""
        batch = self._codec.decoder_batch(tail=self._settings.tail)
        replies = [batch.add(self._voice) for _ in group]
        pieces: list[list[Samples]] = [[] for _ in group]
        for reply, one in zip(replies, group, strict=True):
            batch.push(reply, self._codes(one.reply_rows))
        while batch.ready:
            sound = batch.step()
            for reply, some in zip(replies, pieces, strict=True):
                if reply in sound:
                    some.append(sound[reply])
        for reply, one, some in zip(replies, group, pieces, strict=True):
            _require_equal(one.sound, np.concatenate((*some, batch.finish(reply))))

    def check_alone(self, one: Answered) -> float:
        """The sound against its codes rendered alone. Returns the seconds that the end took."""
        stream = self._codec.decoder_stream(self._voice, tail=self._settings.tail)
        whole_chunks, began = stream.push(self._codes(one.reply_rows)), time.perf_counter()
        alone = np.concatenate((whole_chunks, stream.finish()))
        end_s = time.perf_counter() - began
        _require_equal(one.sound, alone)
        return end_s

    def _codes(self, rows: tuple[Row, ...]) -> list[int]:
        ids = self._ids
        return [a for t, a in rows if t == ids.modality_pad and a != ids.eosp]


def _require_equal(sound: Samples, again: Samples) -> None:
    cosine = float(np.dot(sound, again) / (np.linalg.norm(sound) * np.linalg.norm(again)))
    if cosine < LEAST_COSINE:
        raise NotVerified(
            f"cosine {cosine:.5f} with the codes rendered again; the least is {LEAST_COSINE}"
        )
