"""The codec's thread: failures are reported, and no job waits for ever."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import torch

from mosslive import LanguageModel
from mosslive.codec.flow_pages import PoolFull
from mosslive.engine.device_priority import DevicePriority, DeviceUser
from mosslive.errors import MossliveError
from mosslive.talk import CodecService, Talk
from mosslive.talk.codec_requests import CloseTurn
from mosslive.talk.codec_streams import DecodeStream, EncodeStream
from mosslive.talk.events import TalkFault
from tests.engine.serving import until
from tests.talk.rig import FakeClock, Rig, run
from tests.talk.test_interruption import PUSH_TO_TALK
from tests.talk.toy import TOY_VOICE, Finished, ToyCodec, ToyEncoder


class Gone(BaseException):
    """An exception that no job may raise and that ends a thread."""


def gone() -> None:
    raise Gone("for good")


async def soon(work: Awaitable[object]) -> None:
    await asyncio.wait_for(work, 20)


def test_a_failed_job_affects_only_its_caller() -> None:
    """After a failed job the next one runs normally."""

    async def story() -> None:
        worker = CodecService(ToyCodec())
        with pytest.raises(ZeroDivisionError):
            await soon(worker.do(lambda: 1 // 0))
        assert (await asyncio.wait_for(worker.do(lambda: 7), 20)).value == 7
        await worker.close()

    run(story())


@pytest.mark.parametrize("who", ["asked", "waits", "renders", "comes later"])
def test_a_thread_that_ends_says_so(who: str) -> None:
    """The job that ended the thread, the jobs behind it, an active reply and all later calls get
    the error."""

    async def story() -> None:
        worker = CodecService(ToyCodec(), threaded=False)
        speaking = DecodeStream(worker, TOY_VOICE, 5, 0)
        asked: dict[str, Callable[[], Awaitable[object]]] = {
            "asked": lambda: worker.do(gone, 1.0),
            "waits": lambda: worker.do(lambda: 7, 2.0),
            "renders": lambda: speaking.push([1] * 8, 3.0),
        }
        if who == "comes later":
            worker.do(gone)
            worker._run()
            with pytest.raises(MossliveError, match="thread has ended: Gone: for good"):
                worker.do(lambda: 7)
            worker.post(CloseTurn(0))  # without a result
            return
        tasks = {name: asyncio.ensure_future(ask()) for name, ask in asked.items()}
        await asyncio.sleep(0)
        worker._run()
        with pytest.raises(MossliveError, match="thread has ended: Gone: for good"):
            await soon(tasks.pop(who))
        for task in tasks.values():
            task.cancel()

    run(story())


def test_an_unshared_codec_uses_the_clock_of_its_conversation(nano_lm: LanguageModel) -> None:
    """Due times are compared with the clock they were computed from."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        talk = Talk(rig.engine, ToyCodec(), TOY_VOICE, PUSH_TO_TALK, clock=rig.clock, threads=None)
        assert talk.codec is not None
        assert talk.codec._clock() == rig.clock.time
        await soon(talk.close())
        await rig.close()

    run(story())


def test_a_conversation_whose_codec_ends(nano_lm: LanguageModel) -> None:
    """If the codec ends during a conversation, the reply fails with the reason, text continues, and
    the conversation can be closed."""

    async def story() -> None:
        rig = Rig(nano_lm, ToyCodec(), TOY_VOICE, PUSH_TO_TALK)
        talk = rig.talk
        rig.codec.do(gone)
        rig.codec._run()
        talk.push_text("Hello")
        await rig.until(lambda: not talk.replying)
        (fault,) = rig.of(TalkFault)
        assert (fault.stage, fault.fatal) == ("reply", False)
        assert "thread has ended" in fault.message
        talk.respond("text")
        await rig.until(lambda: not talk.replying)
        assert [said.role for said in talk.turns] == ["system", "user", "assistant"]
        await rig.close()
        assert rig.served.all_free()
        assert not [event async for event in talk.events()], "a second reader gets the end"

    run(story())


def shared() -> tuple[CodecService, DeviceUser]:
    """A thread with a fixed clock, and another user of its device for which it would wait for
    ever."""
    priority = DevicePriority(max_wait_s=1e6)
    worker = CodecService(ToyCodec(), clock=lambda: 100.0, priority=priority)
    return worker, priority.join(lambda: None)


def test_work_that_can_wait_yields_to_other_users_of_the_device() -> None:
    """While another user is urgent, a chunk due later waits, a chunk due soon and bookkeeping do
    not, and the end of the urgency ends the wait."""

    async def story() -> None:
        worker, other = shared()
        other.set_urgent(True)
        speaking = DecodeStream(worker, TOY_VOICE, 5, 0)
        late = asyncio.ensure_future(speaking.push([1] * 8, 100.5))
        await until(lambda: worker._device_user._waiting)
        soon_done = await asyncio.wait_for(worker.do(lambda: "soon", 100.05), 20)
        now_done = await asyncio.wait_for(worker.do(lambda: "now"), 20)
        assert (soon_done.value, now_done.value) == ("soon", "now")
        await until(lambda: worker._device_user._waiting)
        assert not late.done()
        other.set_urgent(False)
        assert len((await asyncio.wait_for(late, 20)).value)
        await soon(worker.close())

    run(story())


@pytest.mark.parametrize(("due", "urgent"), [(100.0, True), (100.1, True), (100.2, False)])
def test_other_users_see_when_the_thread_is_urgent(due: float, urgent: bool) -> None:
    """The thread is marked urgent during the work, also if it fails, and not afterwards."""

    async def story() -> None:
        worker, other = shared()
        assert (
            await asyncio.wait_for(worker.do(lambda: other.others_urgent, due), 20)
        ).value == urgent
        await until(lambda: not other.others_urgent)
        with pytest.raises(ZeroDivisionError):
            await soon(worker.do(lambda: 1 // 0, due))
        await until(lambda: not other.others_urgent)
        with pytest.raises(MossliveError, match="has ended"):
            await soon(worker.do(gone, due))
        await until(lambda: not other.others_urgent)
        await soon(worker.close())

    run(story())


def test_a_thread_that_waits_can_be_closed() -> None:
    """A waiting thread can be closed and still runs the jobs submitted before."""

    async def story() -> None:
        worker, other = shared()
        other.set_urgent(True)
        late = worker.do(lambda: 7, 200.0)
        await until(lambda: worker._device_user._waiting)
        await soon(worker.close())
        assert (await late).value == 7

    run(story())


class ShortEncoder(ToyEncoder):
    """Has pages for one turn of a step only."""

    def start(self, turns: Sequence[Any]) -> Finished:
        return super().start(turns[:1])


def test_a_turn_without_pages_waits_for_them() -> None:
    """A step that leaves out turns answers the others, and the turns that were left out later."""

    async def story() -> None:
        codec = ToyCodec()
        codec.hearing = ShortEncoder()
        service = CodecService(codec, threaded=False)
        turns = [EncodeStream(service, 16_000) for _ in range(3)]
        heard = [asyncio.ensure_future(turn.push(torch.ones(1280), 0.0)) for turn in turns]
        while not all(one.done() for one in heard):
            service.step()
            await asyncio.sleep(0)
        assert [len(one.result().value) for one in heard] == [1, 1, 1]
        for turn in turns:
            turn.close()
        service.step()
        assert service.open_turns == 0

    run(story())


class FullEncoder(ToyEncoder):
    """Has no page at all."""

    def start(self, turns: Sequence[Any]) -> Finished:
        raise PoolFull("no page")


def test_nothing_waits_for_pages_for_ever() -> None:
    """A turn that gets no page fails with the reason, although another turn stays open."""

    async def story() -> None:
        codec, clock = ToyCodec(), FakeClock()
        service = CodecService(codec, clock=clock.now, threaded=False)
        silent, speaking = (EncodeStream(service, 16_000) for _ in range(2))
        await _answered(service, silent.push(torch.ones(10), clock.now()))
        codec.hearing.__class__ = FullEncoder
        pushed = asyncio.ensure_future(speaking.push(torch.ones(1280), clock.now()))
        for _ in range(8):
            await asyncio.sleep(0)
            service.step()
            clock.move_to(clock.now() + 0.5)
        with pytest.raises(PoolFull, match="became free"):
            await soon(pushed)
        silent.close()
        speaking.close()
        service.step()
        assert service.open_turns == 0

    run(story())


async def _answered(service: CodecService, work: Awaitable[object]) -> None:
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        service.step()


def test_a_close_that_is_noticed_while_another_user_is_urgent() -> None:
    """A thread that yields to another user of the device when it is closed still ends."""
    priority = DevicePriority()
    other = priority.join(lambda: None)

    async def story() -> None:
        for _ in range(5):
            service = CodecService(ToyCodec(), priority=priority)
            await service.do(lambda: None)
            other.set_urgent(True)
            service._requests.notify()  # so that it yields, and waits there
            await asyncio.sleep(0.005)
            async with asyncio.timeout(5):
                await service.close()
            other.set_urgent(False)

    asyncio.run(story())
