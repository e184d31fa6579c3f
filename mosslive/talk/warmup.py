"""Warm-up: one-time work of the codec, done before conversations begin.

On a GPU kernels are compiled and graphs recorded when a shape first occurs; the pieces here bring
every shape of live encoding and decoding. Each piece is a short job for the codec's thread, so that
the sound of current conversations does not wait for all of them. Keeps no state: the effect of a
piece is in the networks. Knows the codec's interfaces, not its networks.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from mosslive.codec.conformer import LOOK_AHEAD
from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.graph_sets import BUCKETS
from mosslive.codec.voice import Voice
from mosslive.config import SECONDS_PER_CODE
from mosslive.talk.speech_codec import DecoderBatchLike, SpeechCodec

MOST_REPLIES = BUCKETS[-1]  # in one recorded step
_MOST_AT_ONCE = 16  # codes at the end of a question; resampling holds back one
_FAR = (16, 32, 64, 128, 256, 370)  # codes into a turn; the kernels differ by powers of two


Piece = Callable[[], None]


def hearing_pieces(codec: SpeechCodec, turns: int, recorded: bool) -> Iterator[Piece]:
    """Encodes so many turns at once; if steps are `recorded`, also steps of several codes."""
    yield partial(_hear_together, codec, turns if recorded else 1)
    if recorded:
        for count in range(1, _MOST_AT_ONCE + 2):
            yield partial(_hear_at_once, codec, count)
        yield partial(_hear_far, codec)


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


def _hear_together(codec: SpeechCodec, turns: int) -> None:
    for hearing in [codec.encoder_stream(codec.sample_rate) for _ in range(turns)]:
        for _ in range(3):
            hearing.push(_sound(codec, 1))
        hearing.finish()


def _hear_at_once(codec: SpeechCodec, codes: int) -> None:
    hearing = codec.encoder_stream(codec.sample_rate)
    hearing.push(_sound(codec, codes))
    hearing.finish()


def _hear_far(codec: SpeechCodec) -> None:
    hearing, heard = codec.encoder_stream(codec.sample_rate), 0
    for far in _FAR:
        hearing.push(_sound(codec, far - 2 - heard))
        hearing.push(_sound(codec, 2))
        heard = far
    hearing.finish()


def _sound(codec: SpeechCodec, codes: int) -> Tensor:
    return torch.zeros(codes * round(SECONDS_PER_CODE * codec.sample_rate))


def _speak_together(batch: DecoderBatchLike, voice: Voice, codes: int, replies: int) -> None:
    members = []
    try:
        for _ in range(replies):
            members.append(batch.add(voice))
            batch.push(members[-1], [0] * codes)
        while batch.ready:
            batch.step()
    except PoolFull:  # the pool never holds so many replies at once
        return
    finally:
        for member in members:
            batch.cancel(member)


def _whole_reply(batch: DecoderBatchLike, voice: Voice, codes: int) -> None:
    member = batch.add(voice)
    try:
        batch.push(member, [0] * codes)
        while batch.ready:
            batch.step()
        batch.finish(member)
    finally:
        batch.cancel(member)
