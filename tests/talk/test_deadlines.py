"""Deadlines: the codec does the work that is due first."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from mosslive import LanguageModel
from mosslive.codec import Sound, Voice
from mosslive.talk import CodecService, Talk
from mosslive.talk.codec_requests import (
    NOW,
    AdoptReply,
    CloseReply,
    CloseTurn,
    EndTurn,
    Render,
    Request,
)
from mosslive.talk.codec_streams import DecodeStream
from tests.talk.rig import CODES, RIG, FakeClock, Rig, frames, run
from tests.talk.test_interruption import PUSH_TO_TALK, QUESTION
from tests.talk.toy import TOY_VOICE, Samples, ToyBatch, ToyCodec, ToyReply

SPECULATIVE = replace(RIG, speculate=True)
PAUSED = frames((0.64, True), (7 * 0.032, False))  # up to the frame that signals the pause
LEFT_S = 0.5 - 7 * 0.032  # silence from there to the end of the turn


class WatchedBatch(ToyBatch):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def add(self, voice: Voice, seed: int = 0) -> ToyReply:
        self.log.append(f"open {seed}")
        return super().add(voice, seed)

    def step(self, replies: Sequence[Any]) -> dict[Any, Samples]:
        self.log.append(f"render {sorted(reply.seed for reply in replies)}")
        return super().step(replies)


class WatchedCodec(ToyCodec):
    """Logs its calls; the seed identifies a reply."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.speaking = WatchedBatch(self.log)

    def encoder_batch(self) -> Any:
        encoder: Any = super().encoder_batch()
        finish = encoder.finish

        def watched(turns: Sequence[Any]) -> Any:
            self.log.append("finish")
            return finish(turns)

        encoder.finish = watched
        return encoder


def rest(worker: CodecService) -> None:
    while worker.step():
        pass


async def loop_turns() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


def test_the_earliest_due_goes_first() -> None:
    """Jobs run in the order of their deadlines; equal deadlines in the order of submission."""

    async def story() -> None:
        worker, done = CodecService(ToyCodec(), threaded=False), list[str]()
        for name, due in (("c", 3.0), ("b", 2.0), ("bb", 2.0), ("now", NOW), ("a", 1.0)):
            worker.do(lambda name=name: done.append(name), due)  # type: ignore[misc]
        rest(worker)
        assert done == ["now", "a", "b", "bb", "c"]

    run(story())


@pytest.mark.parametrize(
    ("speculative", "renders"),
    [(False, ["render [1, 2]"]), (True, ["render [1]", "render [2]"])],
)
def test_a_speculative_reply_joins_no_step_that_is_due_earlier(
    speculative: bool, renders: list[str]
) -> None:
    """Replies with a listener share steps, whatever their deadlines; a speculative reply does not
    make their steps longer."""

    async def story() -> None:
        worker = CodecService(codec := WatchedCodec(), threaded=False)
        heard, other = (DecodeStream(worker, TOY_VOICE, 5, seed) for seed in (1, 2))
        jobs = [
            asyncio.ensure_future(other.push([7] * 8, 6.0, speculative)),
            asyncio.ensure_future(heard.push([7] * 8, 5.0)),
        ]
        await loop_turns()
        rest(worker)
        await asyncio.gather(*jobs)
        assert [entry for entry in codec.log if "render" in entry] == renders

    run(story())


def spied(worker: CodecService, clock: FakeClock) -> list[tuple[str, float]]:
    """(kind of request, seconds until it is due) of every request with a deadline."""
    asked: list[tuple[str, float]] = []
    ask = worker.ask

    def watched(request: Request) -> Any:
        if not isinstance(request, EndTurn | CloseTurn | CloseReply | AdoptReply):
            name = type(request).__name__
            apart = isinstance(request, Render) and request.apart
            asked.append((f"{name} apart" if apart else name, request.due - clock.now()))
        return ask(request)

    worker.ask = watched  # type: ignore[method-assign]
    return asked


def test_speculative_work_is_due_when_the_turn_would_be_over(nano_lm: LanguageModel) -> None:
    """Encoding the turn, opening the reply and its first sound are due when the turn would end;
    each further chunk when the sound before it would have been heard."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, SPECULATIVE)
        await rig.say(PAUSED[:-512], 16_000, 512)
        jobs = spied(rig.codec, rig.clock)
        rig.talk.push_audio(PAUSED[-512:], 16_000)
        await rig.settle()
        names = [name for name, _ in jobs]
        assert {"PeekTurn", "OpenReply", "Render apart"} <= set(names)
        assert "Render" not in names
        assert min(due for name, due in jobs if name != "Hear") == pytest.approx(LEFT_S)
        dues = [due for name, due in jobs if name == "Render apart"]
        assert dues == sorted(dues)
        assert dues[-1] > LEFT_S + 0.5
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_turn_that_is_over_is_due_now(nano_lm: LanguageModel) -> None:
    """After a turn its codes, its reply and the first sound are due now; a turn of `say` is due in
    0.5 s."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        await rig.say(QUESTION, 16_000)
        jobs = spied(rig.codec, rig.clock)
        rig.talk.commit()
        await rig.settle()
        first = ["FinishTurn", "OpenReply", "Render"]
        assert jobs[:3] == [(name, 0.0) for name in first]
        assert len(rig.sound()) > 0
        await rig.until(lambda: not rig.talk.replying)
        jobs.clear()
        rig.talk.say("user", Sound(torch.from_numpy(QUESTION), 16_000))
        await rig.settle()
        assert jobs == [("Call", 0.5)]
        await rig.close()
        rig.assert_clean()

    run(story())


def test_speculation_waits_for_a_due_chunk_of_another_conversation(
    nano_lm: LanguageModel,
) -> None:
    """If one user pauses while another hears a reply, the sound that the listener needs before the
    turn could end is rendered before the speculative work."""

    async def story() -> None:
        codec = WatchedCodec()
        rig = Rig(nano_lm, codec, TOY_VOICE, replace(SPECULATIVE, voice_seed=1))
        other = Talk(
            rig.engine,
            rig.codec,
            TOY_VOICE,
            replace(PUSH_TO_TALK, voice_seed=2, lead_s=0.1),
            clock=rig.clock,
        )
        await rig.say(PAUSED[:-512], 16_000, 512)
        other.push_text("Hello")
        await loop_turns()
        while rig.engine.loop.step():  # the reply's rows are there; the codec has done nothing
            await loop_turns()
        rig.talk.push_audio(PAUSED[-512:], 16_000)
        await loop_turns()
        codec.log.clear()
        while rig.codec.step():
            await loop_turns()
            rig.engine.loop.step()
            await loop_turns()
        first = codec.log.index("finish")
        assert "open 2" in codec.log[:first]
        assert "render [2]" in codec.log[:first]
        assert not {"open 1", "render [1]", "render [1, 2]"} & set(codec.log[:first])
        await rig.settle()
        assert "render [1]" in codec.log[first:], "the speculative reply comes later"
        closing = asyncio.ensure_future(other.close())
        await rig.settle()
        await closing
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_speculative_reply_is_whole_when_it_is_adopted(nano_lm: LanguageModel) -> None:
    """An adopted reply has all its sound: deadlines change the order of work only."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, SPECULATIVE)
        await rig.say(frames((0.64, True), (0.6, False)), 16_000, 512)
        await rig.until(lambda: not rig.talk.replying)
        assert len(rig.sound()) == CODES * 1920
        await rig.close()
        rig.assert_clean()

    run(story())
