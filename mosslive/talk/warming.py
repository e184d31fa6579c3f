"""What is done once before conversations begin, so that none of them waits for it.

On a GPU kernels are compiled and graphs recorded when a shape is first met; here all shapes are met
that live hearing and speaking can have. Runs on the codec's thread. Keeps nothing: what it leaves
behind is in the networks. Knows the codec's interfaces, not its networks.
"""

import torch

from mosslive.codec.conformer import LOOK_AHEAD
from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.flow_step import BUCKETS
from mosslive.codec.voice import Voice
from mosslive.config import SECONDS_PER_CODE
from mosslive.talk.speech_codec import SpeakingBatch, SpeechCodec

MOST_REPLIES = BUCKETS[-1]  # that one recorded step moves
_MOST_AT_ONCE = 16  # codes that the end of a question may bring; resampling keeps back one
_FAR = (16, 32, 64, 128, 256, 370)  # codes into a turn; the kernels differ by powers of two


def warm_hearing(codec: SpeechCodec, turns: int, recorded: bool) -> None:
    """So many turns at once; where steps are `recorded`, also those of several codes."""
    rate_hz = codec.sample_rate
    code = round(SECONDS_PER_CODE * rate_hz)  # samples
    for hearing in [codec.encoder_stream(rate_hz) for _ in range(turns if recorded else 1)]:
        for _ in range(3):
            hearing.push(torch.zeros(code))
        hearing.finish()
    if not recorded:
        return
    for count in range(1, _MOST_AT_ONCE + 2):
        hearing = codec.encoder_stream(rate_hz)
        hearing.push(torch.zeros(count * code))
        hearing.finish()
    hearing, heard = codec.encoder_stream(rate_hz), 0
    for far in _FAR:
        hearing.push(torch.zeros((far - 2 - heard) * code))
        hearing.push(torch.zeros(2 * code))
        heard = far
    hearing.finish()


def warm_speaking(
    batch: SpeakingBatch, voice: Voice, chunk: int, replies: int, recorded: bool
) -> None:
    """First and further chunks of 1, 2, 4 ... and so many replies, then ends of every length; or,
    where steps are not `recorded`, one reply with one end."""
    two_chunks = 2 * chunk + LOOK_AHEAD
    if not recorded:
        _whole_reply(batch, voice, two_chunks)
        return
    together = min(replies, MOST_REPLIES)
    sizes = [size for size in BUCKETS if size < together] + [together]
    for size in sizes:
        members = []
        try:
            for _ in range(size):
                members.append(batch.add(voice))
                batch.push(members[-1], [0] * two_chunks)
            while batch.ready:
                batch.step()
        except PoolFull:  # so many never speak at a time
            break
        finally:
            for member in members:
                batch.cancel(member)
    # With and without a chunk before them.
    for codes in range(1, two_chunks):
        _whole_reply(batch, voice, codes)


def _whole_reply(batch: SpeakingBatch, voice: Voice, codes: int) -> None:
    member = batch.add(voice)
    try:
        batch.push(member, [0] * codes)
        while batch.ready:
            batch.step()
        batch.finish(member)
    finally:
        batch.cancel(member)
