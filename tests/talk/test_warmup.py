"""Warm-up before conversations begin, and that it disturbs no conversation."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mosslive.codec import Codec, Sound, Voice, load_codec
from mosslive.codec.encoder_stream import HeardTurn
from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.graph_sets import BUCKETS
from mosslive.talk import CodecWorker
from mosslive.talk.codec_streams import DecodeStream
from tests.codec.conftest import speech
from tests.talk.rig import run
from tests.talk.test_deadlines import loop_turns, rest
from tests.talk.toy import TOY_VOICE, Samples, ToyBatch, ToyCodec, ToyHearing


class Batch(ToyBatch):
    """Records the shapes it is given."""

    def __init__(self, pages: int) -> None:
        super().__init__()
        self.firsts, self.nexts = set[int](), set[int]()  # replies in one step
        self.ends = set[tuple[int, bool]]()  # codes left, and whether a chunk was before them
        self._pages = pages

    def step(self) -> dict[Any, Samples]:
        if len(self.replies) > self._pages:
            raise PoolFull("no page")
        first = [reply for reply in self.ready if not reply.rendered]
        self.firsts.add(len(first))
        self.nexts.add(len(self.ready) - len(first))
        return super().step()

    def finish(self, reply: Any) -> Samples:
        self.ends.add((len(reply.codes) - reply.rendered, reply.rendered > 0))
        return super().finish(reply)


class EncodeStream(ToyHearing):
    def __init__(self, codec: "GpuCodec", rate_hz: int) -> None:
        super().__init__(rate_hz)
        self._codec, self._hears = codec, 0
        codec.open += 1
        codec.most_open = max(codec.most_open, codec.open)

    def push(self, pcm: Tensor) -> list[int]:
        codes = super().push(pcm)
        self._codec.steps.add((self._hears.bit_length(), len(codes)))
        self._hears += len(codes)
        return codes

    def finish(self) -> HeardTurn:
        self._codec.open -= 1
        return super().finish()


class GpuCodec(ToyCodec):
    """Claims to be on a GPU, where shapes are recorded."""

    device = torch.device("cuda")

    def __init__(self, pages: int = 1000) -> None:
        super().__init__()
        self.speaking = self.batch = Batch(pages)
        self.open = self.most_open = 0
        self.steps = set[tuple[int, int]]()  # bucket of the codes before, and codes at once

    def encoder_stream(self, sample_rate: int) -> EncodeStream:
        return EncodeStream(self, sample_rate)


class CpuCodec(GpuCodec):
    device = torch.device("cpu")


async def finished(worker: CodecWorker, work: Coroutine[Any, Any, None]) -> None:
    """Runs the thread's jobs until this one is done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await loop_turns()
        rest(worker)
    await task


def warmed(codec: GpuCodec, replies: int) -> GpuCodec:
    async def story() -> None:
        worker = CodecWorker(codec, threaded=False)
        await finished(worker, worker.warm(TOY_VOICE, 5, replies))

    run(story())
    assert codec.open == 0
    assert codec.speaking.replies == []
    return codec


@pytest.mark.parametrize(
    ("replies", "sizes"),
    [(1, {1}), (2, {1, 2}), (5, {1, 2, 3, 4, 5}), (200, set(BUCKETS))],
)
def test_every_shape_occurs(replies: int, sizes: set[int]) -> None:
    """Warm-up covers chunks of every recorded number of replies, ends of every length, concurrent
    turns, steps of one to sixteen codes, and steps far into a turn."""
    codec = warmed(GpuCodec(), replies)
    assert codec.batch.firsts - {0} == codec.batch.nexts - {0} == sizes
    alone = {(left, False) for left in range(1, 8)}
    assert codec.batch.ends == alone | {(left, True) for left in range(3, 8)}
    assert codec.most_open == replies
    assert {count for _, count in codec.steps} >= set(range(1, 17))
    assert {size for size, count in codec.steps if count == 2} >= set(range(4, 10))


def test_warm_up_with_a_small_pool() -> None:
    """As many replies as fit are warmed up, and everything else completely."""
    codec = warmed(GpuCodec(pages=3), 8)
    assert codec.batch.firsts - {0} == {1, 2, 3}
    assert len(codec.batch.ends) == 12


def test_on_a_cpu_one_reply_after_another_is_enough() -> None:
    """On a CPU the warm-up time does not grow with the number of sessions."""
    codec = warmed(CpuCodec(), 64)
    assert (codec.most_open, codec.batch.sizes) == (1, [1, 1, 1, 1])
    assert codec.batch.ends == {(3, True)}


def test_warm_up_takes_no_sound_of_a_reply(codec: Codec, voice: Voice) -> None:
    """Another conversation's next chunk is its own, and only the pages of the voice and of that
    reply stay taken."""

    async def story() -> None:
        worker = CodecWorker(codec, threaded=False)
        speaking = DecodeStream(worker, voice, 5, 0)
        pushed = asyncio.ensure_future(speaking.push([3] * 8, 5.0))
        await loop_turns()
        worker.step()  # its codes are in the batch
        await finished(worker, worker.warm(voice, 5))
        assert len((await pushed).value) == 5 * 1920 - 3840
        used = [pool.used for pool in codec._streams[next(iter(codec._streams))].pools]
        await finished(worker, worker.warm(voice, 5))
        assert [pool.used for pool in codec._streams[next(iter(codec._streams))].pools] == used
        speaking.close()
        rest(worker)

    run(story())


def test_sound_goes_before_warm_up() -> None:
    """A chunk that is due is rendered between two pieces of the warm-up, not after all of them."""

    async def story() -> None:
        codec = GpuCodec()
        worker = CodecWorker(codec, clock=lambda: 100.0, threaded=False)
        warming = asyncio.ensure_future(worker.warm(TOY_VOICE, 5, 4))
        await loop_turns()
        worker.step()
        speaking = DecodeStream(worker, TOY_VOICE, 5, 0)
        heard = asyncio.ensure_future(speaking.push([3] * 8, 100.2))
        await loop_turns()
        worker.step()  # its codes are in the batch ...
        worker.step()  # ... and rendered, before the next piece
        await loop_turns()
        assert len(heard.result().value) == 5 * 1920 - 3840
        assert not warming.done()
        speaking.close()
        while not warming.done():
            rest(worker)
            await loop_turns()
        assert codec.open == 0
        assert codec.batch.replies == []

    run(story())


def test_current_replies_may_hold_all_pages(codec_folder: Path) -> None:
    """A pool full of replies delays the warm-up; a pool too small for any reply raises."""

    async def story() -> None:
        # 3 pages; a reply needs them all
        codec = load_codec(codec_folder, pool_seconds=1.2, trace_cpu_steps=False)
        voice = codec.voice(Sound(torch.from_numpy(speech(0.5, 24_000)), 24_000))
        worker = CodecWorker(codec, threaded=False)
        speaking = DecodeStream(worker, voice, 5, 0)
        heard = asyncio.ensure_future(speaking.push([3] * 8, 5.0))
        await loop_turns()
        rest(worker)
        await finished(worker, worker.warm(voice, 5))
        assert len((await heard).value)
        speaking.close()
        rest(worker)
        small = CodecWorker(load_codec(codec_folder, pool_seconds=0.4), threaded=False)
        with pytest.raises(PoolFull):
            await finished(small, small.warm(voice, 5))

    run(story())
