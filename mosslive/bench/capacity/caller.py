"""A caller: talks in real time over a line, plays what it hears, and keeps records.

Packets are sent when a microphone would have recorded them. Replies are played as they arrive, by
the playback clock that the server uses to count gaps (`talk/playback.py`): playing begins with the
first sound, and sound that arrives after all earlier sound was played ends a gap. Runs on one event
loop with many other callers, so it does as little as possible for each packet. Knows lines, not
what is behind them.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from mosslive.bench.capacity.line import CallFailed, CallRefused, Line, TurnEnds
from mosslive.bench.capacity.load import Load, PlannedTurn, plan_call
from mosslive.bench.capacity.outcome import HeardReply, Outcome, Status
from mosslive.bench.capacity.questions import PACKET_S, RATE_HZ
from mosslive.config import SECONDS_PER_CODE
from mosslive.talk.playback import Playback

SAMPLES_PER_CODE = round(SECONDS_PER_CODE * RATE_HZ)
PATIENCE_S = 30.0  # a caller waits this long for the first sound, and for each further one
_AFTER_FAULT_S = 1.0  # until the next call
_STATUS: dict[str, Status] = {"cancelled": "interrupted", "refused": "refused"}


@dataclass(eq=False)
class _Reply:
    """A question that was asked, and its reply so far."""

    asked_at: float
    playback: Playback = field(default_factory=lambda: Playback(RATE_HZ, math.inf))
    name: str = ""
    first_at: float | None = None
    good: bool = True
    cut: bool = False  # by the caller
    ended: str = ""  # its status
    fault: str = ""


class Caller:
    def __init__(
        self,
        number: int,
        load: Load,
        make_line: Callable[[], Line],
        question_packets: list[int],
        ends: TurnEnds,
    ) -> None:
        """`question_packets`: the number of packets of each question."""
        self._number, self._load, self._make_line = number, load, make_line
        self._packets, self._ends = question_packets, ends
        self.outcome = Outcome()
        self._began = 0.0  # of the level
        self._reset()

    def _reset(self) -> None:
        """Before each call."""
        self._replies: dict[str, _Reply] = {}  # by name
        self._asked: _Reply | None = None  # the question whose reply has not begun
        self._speech: deque[tuple[int, int]] = deque()  # packets to send
        self._spoken: asyncio.Future[float] | None = None  # when the last of them was sent
        self._speaks, self._changed = asyncio.Event(), asyncio.Event()
        self._dead = ""  # why the line is

    async def run(self, began: float, first_s: float, until_s: float) -> None:
        """Calls again and again. `began`: the start of the level on the monotonic clock. `first_s`,
        `until_s`: when to call first, and when to ask no further question."""
        self._began = began
        await self._sleep(began + first_s)
        for call in range(1 << 30):
            planned = plan_call(self._load, self._number, call)
            wait_s, before = planned.between_s, len(self.outcome.replies)
            try:
                await self._call(planned.turns, until_s)
            except CallRefused as refused:
                self.outcome.refused += 1
                wait_s += refused.retry_s
            except CallFailed as error:
                if not any(one.status == "failed" for one in self.outcome.replies[before:]):
                    self.outcome.faults.append(str(error))  # else the reply has it
                wait_s += _AFTER_FAULT_S
            if self._now + wait_s >= until_s:
                return
            await asyncio.sleep(wait_s)

    async def _call(self, turns: tuple[PlannedTurn, ...], until_s: float) -> None:
        self._reset()
        line = self._make_line()
        await line.open(self)
        opened = self._now
        microphone = asyncio.get_running_loop().create_task(self._microphone(line))
        asked: list[_Reply] = []
        try:
            for turn in turns:
                if self._now >= until_s:
                    break
                asked.append(await self._ask(line, turn))
                await self._listen(line, turn, asked[-1], last=turn is turns[-1])
        finally:
            microphone.cancel()
            await asyncio.wait([microphone])
            await line.close()
            self.outcome.calls.append((opened, self._now))
            self.outcome.replies += [self._record(one) for one in asked]

    async def _ask(self, line: Line, turn: PlannedTurn) -> _Reply:
        await line.limit(turn.reply_codes)
        self._spoken = asyncio.get_running_loop().create_future()
        self._speech.extend((turn.question, one) for one in range(self._packets[turn.question]))
        self._speaks.set()
        try:
            await self._until(self._spoken.done, PATIENCE_S + len(self._speech) * PACKET_S)
        except TimeoutError:
            raise CallFailed(f"a question could not be sent within {PATIENCE_S:g} s") from None
        self._asked = asked = _Reply(self._spoken.result())
        if not self._ends.detected:
            await line.commit()
        return asked

    async def _listen(self, line: Line, turn: PlannedTurn, reply: _Reply, last: bool) -> None:
        """Returns when the caller wants to speak again, or to hang up."""
        if not await self._heard_more(lambda: reply.first_at is not None, reply):
            return
        playback = reply.playback
        if turn.cut is not None and reply.first_at is not None:
            heard_s = turn.cut * turn.reply_codes * SECONDS_PER_CODE
            await self._sleep(reply.first_at + heard_s)
            if not reply.ended or time.monotonic() < playback.ends_at:
                reply.cut = True
                if not last:
                    await line.interrupt(reply.name, not reply.ended, heard_s)
                return
        if await self._heard_more(lambda: bool(reply.ended), reply):
            await self._sleep(playback.ends_at)
            await asyncio.sleep(0.0 if last else turn.pause_s)

    async def _heard_more(self, done: Callable[[], bool], reply: _Reply) -> bool:
        """Waits until `done` or the end of the reply. False: nothing came for too long."""
        while not (done() or reply.ended):
            samples = reply.playback.sent
            try:
                await self._until(
                    lambda seen=samples: bool(  # type: ignore[misc]
                        done() or reply.ended or reply.playback.sent > seen
                    ),
                    PATIENCE_S + max(0.0, reply.playback.ends_at - time.monotonic()),
                )
            except TimeoutError:
                reply.ended, reply.fault = "failed", f"no sound came for {PATIENCE_S:g} s"
                self._asked = None
                return False
        return True

    async def _microphone(self, line: Line) -> None:
        """Sends packets until it is cancelled. If turns are committed, only those of questions."""
        began, sent = time.monotonic(), 0
        try:
            while True:
                if not self._speech and not self._ends.detected:
                    self._speaks.clear()
                    await self._speaks.wait()
                    began, sent = time.monotonic(), 0
                sent += 1
                due = began + sent * PACKET_S
                if (wait_s := due - time.monotonic()) > 0:
                    await asyncio.sleep(wait_s)
                self.outcome.late_s = max(self.outcome.late_s, time.monotonic() - due)
                if not self._speech:
                    await line.send_silence()
                    continue
                await line.send(*self._speech.popleft())
                if not self._speech and self._spoken:
                    self._spoken.set_result(time.monotonic())
                    self._changed.set()
        except CallFailed as error:
            self.dropped(str(error))

    # What comes over the line.

    def begun(self, reply: str) -> None:
        if self._asked is None:
            self.outcome.unasked += 1
            return
        self._asked.name = reply
        self._replies[reply], self._asked = self._asked, None

    def sound(self, reply: str, samples: int, *, good: bool = True) -> None:
        heard = self._replies.get(reply)
        if heard is None or heard.ended:
            return
        now = time.monotonic()
        heard.first_at = heard.first_at or now
        heard.playback.send(samples, now)
        heard.good = heard.good and good
        self._changed.set()

    def ended(self, reply: str, status: str, *, codes: int | None = None, fault: str = "") -> None:
        heard = self._replies.get(reply)
        if heard is None or heard.ended:
            return
        heard.ended, heard.fault = status, fault
        samples = heard.playback.sent
        if status == "cancelled" and not heard.cut:
            heard.ended, heard.fault = "failed", "the server stopped the reply"
        elif status == "completed" and not samples:
            heard.ended, heard.fault = "failed", "the reply has no sound"
        elif status == "completed":
            expected = SAMPLES_PER_CODE * (samples // SAMPLES_PER_CODE if codes is None else codes)
            if samples != expected:
                heard.ended, heard.fault = "failed", f"{samples} samples, {expected} expected"
        if samples and not heard.good:
            heard.ended, heard.fault = "failed", "the sound is silent or not finite"
        self._changed.set()

    def dropped(self, reason: str) -> None:
        self._dead = self._dead or reason
        self._changed.set()

    def _record(self, reply: _Reply) -> HeardReply:
        status: Status = "failed"
        if reply.cut and reply.ended in ("", "completed", "cancelled"):
            status = "interrupted"
        elif reply.ended == "completed":
            status = "heard"
        else:
            status = _STATUS.get(reply.ended, "failed")
        fault = reply.fault
        if status == "failed":
            fault = fault or self._dead or f"the reply ended as {reply.ended or 'unfinished'}"
        first, playback = reply.first_at, reply.playback
        return HeardReply(
            reply.asked_at - self._began,
            None if first is None else first - reply.asked_at,
            playback.underruns,
            playback.silence_s,
            playback.sent,
            status,
            fault,
        )

    # Time.

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    async def _sleep(self, moment: float) -> None:
        """Until a moment of the monotonic clock. Raises `CallFailed` if the line dies meanwhile."""
        left_s = moment - time.monotonic()
        if left_s > 0:
            await asyncio.sleep(left_s)
        self._require_line()

    async def _until(self, done: Callable[[], bool], most_s: float) -> None:
        """Raises `CallFailed` if the line dies, `TimeoutError` after `most_s`."""
        async with asyncio.timeout(most_s):
            while not done():
                self._require_line()
                self._changed.clear()
                await self._changed.wait()

    def _require_line(self) -> None:
        if self._dead:
            raise CallFailed(self._dead)
