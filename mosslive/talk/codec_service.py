"""The codec as a service: it answers the requests of all conversations in common steps.

One thread, "mosslive-codec", owns the codec. It takes requests (`codec_requests`), decides which
steps start (`codec_plan`), starts them and returns their results. On a GPU a step runs while the
thread does other work, and steps of different lanes run at the same time. Event loops never wait
for a network. The requests of one turn or reply keep their order, because its caller awaits each
before the next. Knows nothing of dialogues or rows.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor

from mosslive.codec.flow_pages import PoolFull
from mosslive.codec.flow_stream import TailRule
from mosslive.codec.voice import Voice
from mosslive.engine.device_priority import DevicePriority
from mosslive.engine.health import Health
from mosslive.engine.step_costs import StepCosts
from mosslive.errors import MossliveError
from mosslive.talk.codec_calls import Calls
from mosslive.talk.codec_lanes import Lanes
from mosslive.talk.codec_members import Members
from mosslive.talk.codec_plan import Lane, Open, PlanSettings, Step, next_change, plan
from mosslive.talk.codec_requests import (
    NOW,
    AdoptReply,
    Call,
    CloseReply,
    CloseTurn,
    Done,
    EndTurn,
    FinishTurn,
    Hear,
    OpenReply,
    PeekTurn,
    Render,
    Request,
    Value,
)
from mosslive.talk.production import Production
from mosslive.talk.request_queue import Asked, RequestQueue
from mosslive.talk.speech_codec import SpeechCodec
from mosslive.talk.warmup import hearing_pieces, speaking_pieces

# When a turn that is encoded whole, and work that prepares for later, is due: after sound that a
# listener waits for.
_CAN_WAIT_S = 0.5
# On a CPU, other users wait for work that is due within this time: longer than any step takes.
URGENT_S = 0.1
_WAITS_FOR_PAGES_S = 3.0  # after the request and after its deadline
_POLL_S, _MOST_POLL_S = 0.0003, 0.002  # while steps run on a GPU


class CodecService:
    """Deadlines are moments of `clock`, which all conversations here share."""

    def __init__(
        self,
        codec: SpeechCodec,
        *,
        clock: Callable[[], float] = time.monotonic,
        threaded: bool = True,
        priority: DevicePriority | None = None,
        plan_settings: PlanSettings | None = None,
    ) -> None:
        """`threaded=False`: no thread; the caller calls `step`. `priority`: of the users of the
        same CPU, usually the engine's; on a GPU the priorities of its streams do that."""
        self.codec = codec
        self.sample_rate = codec.sample_rate
        self.production = Production()  # of the sound of all conversations
        self.health = Health("the codec's thread", clock)
        self._clock, self._plan_settings = clock, plan_settings or PlanSettings()
        self._numbers = count()
        self._requests = RequestQueue(self.health)
        self._calls = Calls(self.health, clock)
        self._lanes = Lanes(codec.device, clock)
        self._members = Members(codec, self.health, clock)
        self._plan_at = NOW  # when work that waits for companions starts without them
        self._retry_at = NOW  # when stalled work is tried again, although nothing ended
        self._stalled: set[int] = set()  # wait for pages until another step ends
        self._device_user = (priority or DevicePriority()).join(self._requests.notify)
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="mosslive-codec", daemon=True)
            self._thread.start()

    # On an event loop.

    def new_number(self) -> int:
        """Of a turn or a reply."""
        return next(self._numbers)

    def ask(self, request: Request) -> "asyncio.Future[Done[Any]]":
        result: asyncio.Future[Done[Any]] = asyncio.get_running_loop().create_future()
        self._requests.put(request, result)
        return result

    def post(self, request: Request) -> None:
        """Without a result."""
        self._requests.put(request, None)

    def do(
        self, work: Callable[[], Value], due: float = NOW, kind: str = ""
    ) -> "asyncio.Future[Done[Value]]":
        """Runs `work` on the thread. `kind`: of work, for the health of the thread; empty: not
        counted."""
        return self.ask(Call(work, due, kind))

    async def encode(self, wave: Tensor, rate_hz: int, due: float | None = None) -> list[int]:
        """Encodes a whole turn at once. Default deadline: soon, but after urgent sound."""
        due = self._clock() + _CAN_WAIT_S if due is None else due
        encoded = self.do(lambda: self.codec.encode(wave, rate_hz), due, "encoding")
        return (await encoded).value

    @property
    def open_turns(self) -> int:
        """That hold memory of the codec."""
        return len(self._members.turns)

    @property
    def open_replies(self) -> int:
        return len(self._members.replies)

    @property
    def costs(self) -> dict[str, StepCosts]:
        """Durations of steps by the number of turns or replies in them: "encode", "render_first"
        and "render"."""
        return self._lanes.costs

    def stage_seconds(self) -> dict[str, float]:
        """Seconds that the steps of each stage took since the start, together."""
        return dict(self._lanes.seconds)

    async def warm(
        self, voice: Voice, chunk: int, replies: int = 1, tail: TailRule = "cached"
    ) -> None:
        """Does once, ahead of time, the one-time work of up to `replies` conversations: loads the
        networks, prepares the voice, and on a GPU compiles and records steps of every size.

        Other voices are prepared at their first use. On a CPU one turn and two replies, one after
        the other, are enough. Runs in short pieces, after the sound of current conversations."""
        recorded = self.codec.device.type == "cuda"

        async def do(piece: Callable[[], Value]) -> Value:
            return (await self.do(piece, self._clock() + _CAN_WAIT_S)).value

        for piece in hearing_pieces(self._members.encoder, replies, recorded):
            await do(partial(self._in_lane, "hear", piece))
        # A batch of its own: steps of the shared batch would return the sound of current replies.
        batch = await do(lambda: self.codec.decoder_batch(chunk, tail=tail))
        for piece in speaking_pieces(batch, voice, chunk, replies, recorded):
            try:
                await do(partial(self._in_lane, "render", piece))
            except PoolFull:
                if not self.open_replies:  # else current replies hold the pages
                    raise

    def _in_lane(self, lane: Lane, work: Callable[[], Value]) -> Value:
        with self._lanes.stream(lane):
            return work()

    async def close(self) -> None:
        """Ends the thread after the waiting requests."""
        self._requests.close()
        if self._thread:
            await asyncio.to_thread(self._thread.join)
        self._device_user.leave()

    # On the thread.

    def step(self) -> bool:
        """Takes all requests, returns the results of steps that ended, and starts the steps that
        are planned or runs a call: what is due first. False: there was nothing to do."""
        moved = self._take()
        moved |= self._collect()
        if self._stalled:
            self._fail_overdue()
            if self._clock() >= self._retry_at:
                self._stalled.clear()
        elif not moved and self._lanes.busy and self._clock() < self._plan_at:
            return False  # the plan would be the same
        steps = self._plan()
        if self._calls and self._calls.due <= self._due(steps):
            self._calls.run_next()
            self._plan_at = NOW
            return True
        for one in steps:
            self._start(one)
        waiting = (one for one in self._members.work() if one.key not in self._stalled)
        at = next_change(waiting, self._lanes.busy, self._counts, self._plan_settings)
        if self._stalled:
            if self._retry_at < self._clock():
                self._retry_at = self._clock() + _WAITS_FOR_PAGES_S / 10
            at = min(at, self._retry_at)
        self._plan_at = max(at, self._clock() + _POLL_S)
        return moved or bool(steps)

    def _run(self) -> None:
        try:
            with self._on_device():
                while not (self._requests.closing and not self._take() and self._is_idle):
                    if not self._lanes.concurrent:
                        self._device_user.yield_device(self._is_urgent, self._pause)
                    if self.step():
                        self._device_user.set_urgent(bool(self._is_urgent()))
                    else:
                        self._requests.wait(self._wait_s())
        except BaseException as error:  # raised where requests are awaited, now and later
            self._give_up(self._requests.give_up(error))
        finally:
            self._device_user.leave()

    # Requests.

    def _take(self) -> bool:
        asked = self._requests.take()
        for one in asked:
            self._accept(one)
        return bool(asked)

    def _accept(self, asked: Asked) -> None:
        match asked.request:
            case Call() as call:
                self._calls.add(call, asked.result)
            case OpenReply(due=due) as opened:
                call = Call(lambda: self._open(opened), due, "opening replies")
                self._calls.add(call, asked.result)
            case Hear() | FinishTurn() | PeekTurn() | Render() as request:
                self._members.accept(request, asked.result, self._open)
            case EndTurn(turn):
                self._members.end_turn(turn)
            case CloseTurn(turn):
                self._members.close_turn(turn)
                self._stalled.clear()  # pages may be free now
            case AdoptReply(reply):
                self._members.adopt_reply(reply)
            case CloseReply(reply):
                self._members.close_reply(reply)
                self._stalled.clear()

    def _open(self, request: OpenReply) -> None:
        """A voice is prepared by steps of the lane `render`, so the step that runs there ends
        first; and it is used in other lanes, so its own steps end too."""
        if self._members.is_prepared(request):
            self._members.open_reply(request)
            return
        if running := self._lanes.running("render"):
            with self._lanes.stream("render"):
                running.result()
        with self._lanes.stream("render"):
            self._members.open_reply(request)
        self._lanes.synchronise()

    # Steps.

    def _plan(self) -> list[Step]:
        work = [one for one in self._members.work() if one.key not in self._stalled]
        return plan(
            work,
            self._lanes.busy,
            self._counts,
            self._clock(),
            self._plan_settings,
            lanes=self._lanes.concurrent,
        )

    def _start(self, step: Step) -> None:
        began = self._clock()
        self.health.began(step.lane, step.stage)
        try:
            with self._lanes.stream(step.lane):
                started, running = self._members.start(step)
        except PoolFull as error:
            self.health.over(step.lane)
            if len(step.keys) > 1:  # the first of them may fit, and free pages
                self._start(Step(step.stage, step.keys[:1]))
            else:
                self._stall(step, error)
            return
        except Exception as error:  # the member that caused it is unknown, so all of them fail
            self._members.fail(step, error)
            return
        self._lanes.began(started, running, began)
        if not self._lanes.concurrent:
            self._collect()

    def _stall(self, step: Step, error: PoolFull) -> None:
        """Turns or replies without pages wait for others to end. If all of them wait, the youngest
        fails."""
        self._stalled |= set(step.keys)
        if not self._lanes.busy and self._stalled >= set(self._members.waiting_for(step)):
            self._members.fail(Step(step.stage, [max(step.keys)]), error)
            self._stalled.clear()

    def _fail_overdue(self) -> None:
        """Nothing waits for pages for ever: others may hold them for minutes."""
        late = self._clock() - _WAITS_FOR_PAGES_S
        for one in [one for one in self._members.work() if one.key in self._stalled]:
            if max(one.due, self._members.asked_at(one)) < late:
                self._stalled.discard(one.key)
                error = PoolFull(f"no page of the codec became free in {_WAITS_FOR_PAGES_S:g} s")
                self._members.fail(Step(one.stage, [one.key]), error)

    def _collect(self) -> bool:
        """Returns the results of the steps that ended."""
        ended, left_out = self._lanes.ended(), set[int]()
        for one in ended:
            try:
                with self._lanes.stream(one.step.lane):
                    results = one.running.result()
            except Exception as error:
                self._members.fail(one.step, error)
                continue
            cost_s = self._lanes.end(one)
            left_out |= self._members.settle(one.step, results, cost_s)
        if ended:
            self._stalled = left_out
        return bool(ended)

    @property
    def _counts(self) -> Open:
        return Open(self.open_turns, self.open_replies, self._members.unheard)

    @property
    def _is_idle(self) -> bool:
        return not (self._calls or self._lanes.busy or any(True for _ in self._members.work()))

    def _wait_s(self) -> float | None:
        """How long the thread may wait if no request comes."""
        if self._lanes.busy:
            moment = min(self._lanes.expected_end(), self._plan_at) - self._clock()
            return max(_POLL_S, min(moment, _MOST_POLL_S))
        return None if self._plan_at == math.inf else max(_POLL_S, self._plan_at - self._clock())

    # Other users of the same device.

    def _is_urgent(self) -> bool | None:
        """Whether the next work is due so soon that other users of the device should wait for it;
        None: it is bookkeeping, which takes no time."""
        if self._lanes.concurrent:  # only first sounds: lanes have priorities
            return self._has_first_sounds
        self._take()
        due = self._due(self._plan())
        due = min(due, self._calls.due)
        return None if due == NOW or self._requests.closing else due - self._clock() <= URGENT_S

    @property
    def _has_first_sounds(self) -> bool:
        busy = "first" in self._lanes.busy
        return busy or any(one.stage == "first" for one in self._members.work())

    def _pause(self, most_s: float) -> None:
        """Waits for a request, at most until the next work becomes urgent."""
        due = min(self._due(self._plan()), self._calls.due)
        self._requests.wait(max(0.0, min(most_s, due - URGENT_S - self._clock())))

    def _due(self, steps: list[Step]) -> float:
        keys = {key for step in steps for key in step.keys}
        return min((one.due for one in self._members.work() if one.key in keys), default=math.inf)

    def _give_up(self, error: MossliveError) -> None:
        self._calls.give_up(error)
        self._members.give_up(error)

    def _on_device(self) -> AbstractContextManager[Any]:
        """On a GPU: calls run on the stream of the lane `hear`, behind first sounds."""
        if self.codec.device.type != "cuda":
            return nullcontext()
        torch.cuda.synchronize(self.codec.device)  # weights loaded on other streams are there
        return self._lanes.stream("hear")
