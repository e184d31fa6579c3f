"""Warm-up before conversations begin, and that it disturbs no conversation."""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from mosslive.codec import Codec, Sound, Voice, load_codec
from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.graph_sets import BUCKETS
from mosslive.talk import CodecService
from mosslive.talk.codec_streams import DecodeStream
from tests.codec.conftest import speech
from tests.talk.rig import run
from tests.talk.test_deadlines import loop_turns, rest
from tests.talk.toy import TOY_VOICE, Samples, ToyBatch, ToyCodec, ToyEncoder, ToyTurn


class Batch(ToyBatch):
    """Records the shapes it is given."""

    def __init__(self, pages: int) -> None:
        super().__init__()
        self.firsts, self.nexts = set[int](), set[int]()  # replies in one step
        self.ends = set[tuple[int, bool]]()  # codes left, and whether a chunk was before them
        self._pages = pages

    def step(self, replies: Sequence[Any]) -> dict[Any, Samples]:
        if len(self.replies) > self._pages:
            raise PoolFull("no page")
        stages = [reply.stage for reply in replies]
        self.firsts.add(stages.count("first"))
        self.nexts.add(stages.count("steady"))
        for reply in replies:
            if reply.stage == "last":
                self.ends.add((len(reply.codes) - reply.rendered, reply.rendered > 0))
        return super().step(replies)


class Encoder(ToyEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.most_open = 0

    def add(self) -> ToyTurn:
        turn = super().add()
        self.most_open = max(self.most_open, len(self.turns))
        return turn


class GpuCodec(ToyCodec):
    """Claims to be on a GPU, where shapes are recorded."""

    device = torch.device("cuda")

    def __init__(self, pages: int = 1000) -> None:
        super().__init__()
        self.speaking = self.batch = Batch(pages)
        self.hearing = self.encoder = Encoder()


class CpuCodec(GpuCodec):
    device = torch.device("cpu")


async def finished(worker: CodecService, work: Coroutine[Any, Any, None]) -> None:
    """Runs the thread's jobs until this one is done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await loop_turns()
        rest(worker)
    await task


def warmed(codec: GpuCodec, replies: int) -> GpuCodec:
    async def story() -> None:
        worker = CodecService(codec, threaded=False)
        await finished(worker, worker.warm(TOY_VOICE, 5, replies))

    run(story())
    assert codec.hearing.turns == []
    assert codec.speaking.replies == []
    return codec


@pytest.mark.parametrize(
    ("replies", "sizes"),
    [(1, {1}), (2, {1, 2}), (5, {1, 2, 3, 4, 5}), (200, set(BUCKETS))],
)
def test_every_shape_occurs(replies: int, sizes: set[int]) -> None:
    """Warm-up covers chunks of every recorded number of replies, ends of every length, and so many
    turns at once."""
    codec = warmed(GpuCodec(), replies)
    assert codec.batch.firsts - {0} == codec.batch.nexts - {0} == sizes
    alone = {(left, False) for left in range(1, 8)}
    assert codec.batch.ends == alone | {(left, True) for left in range(3, 8)}
    assert codec.encoder.most_open == codec.encoder.recorded == replies


def test_warm_up_with_a_small_pool() -> None:
    """As many replies as fit are warmed up, and everything else completely."""
    codec = warmed(GpuCodec(pages=3), 8)
    assert codec.batch.firsts - {0} == {1, 2, 3}
    assert len(codec.batch.ends) == 12


def test_on_a_cpu_one_reply_after_another_is_enough() -> None:
    """On a CPU the warm-up time does not grow with the number of sessions."""
    codec = warmed(CpuCodec(), 64)
    assert (codec.encoder.most_open, codec.batch.sizes) == (1, [1] * 6)
    assert codec.batch.ends == {(3, True)}


def test_warm_up_takes_no_sound_of_a_reply(codec: Codec, voice: Voice) -> None:
    """Another conversation's next chunk is its own, and only the pages of the voice and of that
    reply stay taken."""

    async def story() -> None:
        worker = CodecService(codec, threaded=False)
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
        worker = CodecService(codec, clock=lambda: 100.0, threaded=False)
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
        assert codec.hearing.turns == []
        assert codec.batch.replies == []

    run(story())


def test_current_replies_may_hold_all_pages(codec_folder: Path) -> None:
    """A pool full of replies delays the warm-up; a pool too small for any reply raises."""

    async def story() -> None:
        # 3 pages; a reply needs them all
        codec = load_codec(codec_folder, pool_seconds=1.2, trace_cpu_steps=False)
        voice = codec.voice(Sound(torch.from_numpy(speech(0.5, 24_000)), 24_000))
        worker = CodecService(codec, threaded=False)
        speaking = DecodeStream(worker, voice, 5, 0)
        heard = asyncio.ensure_future(speaking.push([3] * 8, 5.0))
        await loop_turns()
        rest(worker)
        await finished(worker, worker.warm(voice, 5))
        assert len((await heard).value)
        speaking.close()
        rest(worker)
        small = CodecService(load_codec(codec_folder, pool_seconds=0.4), threaded=False)
        with pytest.raises(PoolFull):
            await finished(small, small.warm(voice, 5))

    run(story())
