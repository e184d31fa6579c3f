"""Warm-up: one-time work of the codec, done before conversations begin.

On a GPU kernels are compiled and graphs recorded when a shape first occurs; the pieces here bring
every shape of live encoding and decoding. Each piece is a short job for the codec's thread, so that
the sound of current conversations does not wait for all of them. Keeps no state: the effect of a
piece is in the networks. Knows the codec's interfaces, not its networks.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from mosslive.codec.conformer import LOOK_AHEAD
from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.graph_sets import BUCKETS
from mosslive.codec.mel import BLOCK_SAMPLES
from mosslive.codec.voice import Voice
from mosslive.talk.speech_codec import DecoderBatchLike, EncoderBatchLike

MOST_REPLIES = BUCKETS[-1]  # in one recorded step


Piece = Callable[[], None]


def hearing_pieces(
    encoder: Callable[[], EncoderBatchLike], turns: int, recorded: bool
) -> Iterator[Piece]:
    """Encodes blocks and ends of turns; if steps are `recorded`, records those of up to so many
    turns first."""
    if recorded:
        yield lambda: encoder().record(turns)
    yield lambda: _hear_together(encoder(), turns if recorded else 1)


def speaking_pieces(
    batch: DecoderBatchLike, voice: Voice, chunk: int, replies: int, recorded: bool
) -> Iterator[Piece]:
    """All graphs of up to so many replies, then one reply. Where a batch records only what it
    renders: first and further chunks of so many and of fewer replies, then ends of every length.
    Where steps are not `recorded`, as on a CPU, one reply with one end, twice: what PyTorch runs
    side by side (`kernels.trace.fork`) it looks at in one run and improves in the next."""
    two_chunks, steady = 2 * chunk + LOOK_AHEAD, batch.warm_chunks * chunk + LOOK_AHEAD
    if not recorded:
        for _ in range(2):
            yield partial(_whole_reply, batch, voice, two_chunks)
        return
    together = min(replies, MOST_REPLIES)
    pieces: list[Piece] = []
    yield lambda: pieces.extend(batch.recordings(voice, together))  # it prepares the voice
    if pieces:
        yield from pieces
        yield partial(_whole_reply, batch, voice, two_chunks)
        return
    for size in reversed([*(size for size in BUCKETS if size < together), together]):
        yield partial(_speak_together, batch, voice, steady, size)
    # With and without a chunk before them.
    for codes in range(1, two_chunks):
        yield partial(_whole_reply, batch, voice, codes)


def _hear_together(batch: EncoderBatchLike, turns: int) -> None:
    """Blocks of all turns, one after another, then their ends: with more to encode for each."""
    heard = [batch.add() for _ in range(turns)]
    try:
        for blocks in (1, 1, 2):
            for turn in heard:
                batch.push(turn, torch.zeros(blocks * BLOCK_SAMPLES))
            while ready := [turn for turn in heard if turn.waiting]:
                batch.start(ready).result()
        for turn in heard:  # a louder end changes what came before
            batch.push(turn, 0.5 * torch.ones(BLOCK_SAMPLES // 2))
        batch.finish(heard).result()
    finally:
        for turn in heard:
            batch.cancel(turn)


def _speak_together(batch: DecoderBatchLike, voice: Voice, codes: int, replies: int) -> None:
    members = []
    try:
        for _ in range(replies):
            members.append(batch.add(voice))
            batch.push(members[-1], [0] * codes)
        while ready := batch.ready:
            batch.start(ready).result()
    except PoolFull:  # the pool never holds so many replies at once
        return
    finally:
        for member in members:
            batch.cancel(member)


def _whole_reply(batch: DecoderBatchLike, voice: Voice, codes: int) -> None:
    member = batch.add(voice)
    try:
        batch.push(member, [0] * codes)
        batch.end(member)
        while batch.ready:
            batch.start([member]).result()
    finally:
        batch.cancel(member)
