"""The open turns and replies of the codec service, and what each waits for.

Holds the encoder's and the decoder's batches, passes requests on to them and returns results to the
callers. Runs on the codec's thread. Does not decide when a step runs. Invariant: a turn or reply
that is finished, closed or failed holds no memory of the codec, and its caller has a result.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mosslive.codec.flow_stream import TailRule
from mosslive.engine.device_errors import raise_if_lost
from mosslive.engine.health import Health
from mosslive.errors import MossliveError, NotFinite, is_failure
from mosslive.talk.codec_plan import Stage, Step, Work
from mosslive.talk.codec_requests import Done, FinishTurn, Hear, OpenReply, PeekTurn, Render
from mosslive.talk.request_queue import Result, settle
from mosslive.talk.speech_codec import (
    DecoderBatchLike,
    EncoderBatchLike,
    Running,
    Samples,
    SpeechCodec,
)

_KINDS: dict[Stage, str] = {
    "finish": "hearing the end of a turn",
    "hear": "hearing",
    "first": "rendering",
    "render": "rendering",
}


@dataclass(eq=False)
class _Member:
    """A turn or a reply. `result` is None while its caller waits for nothing."""

    member: Any  # of the batch
    due: float = 0.0
    asked_at: float = 0.0  # moment of the request in progress
    result: Result | None = None
    running: bool = False  # in a step
    cost_s: float = 0.0  # of the request in progress
    apart: bool = False  # nobody waits for it yet


@dataclass(eq=False)
class _Turn(_Member):
    finishes: bool = False
    ended: bool = False  # `FinishTurn` follows: blocks that wait are left to it
    codes: list[int] = field(default_factory=list)  # of the request in progress


@dataclass(eq=False)
class _Reply(_Member):
    batch: Any = None
    last: bool = False
    pieces: list[Samples] = field(default_factory=list)  # of the request in progress


class Members:
    def __init__(self, codec: SpeechCodec, health: Health, clock: Callable[[], float]) -> None:
        self._codec, self._health, self._clock = codec, health, clock
        self.turns: dict[int, _Turn] = {}
        self.replies: dict[int, _Reply] = {}
        self._encoder: EncoderBatchLike | None = None
        self._batches: dict[tuple[int, TailRule], DecoderBatchLike] = {}

    # Requests.

    def accept(
        self,
        request: Hear | FinishTurn | PeekTurn | Render,
        result: Result | None,
        open_reply: Callable[[OpenReply], None],
    ) -> None:
        """An error of the request is its result."""
        assert result is not None, "its caller waits for it"
        try:
            if isinstance(request, Render):
                open_reply(request.reply)
                self._render(request, result)
            elif isinstance(request, PeekTurn):
                self._peek(request, result)
            else:
                self._hear(request, result)
        except Exception as error:
            if is_failure(error):
                rendering = isinstance(request, Render)
                self._health.failed("opening replies" if rendering else "hearing", error)
            settle(result, error)
            raise_if_lost(error)

    def is_prepared(self, request: OpenReply) -> bool:
        """Whether opening this reply needs no step of the device."""
        opened = request.reply in self.replies
        return opened or self._batch(request.chunk, request.tail).prepared(request.voice)

    def open_reply(self, request: OpenReply) -> None:
        if request.reply not in self.replies:
            batch = self._batch(request.chunk, request.tail)
            member = batch.add(request.voice, request.seed)
            self.replies[request.reply] = _Reply(member, batch=batch, apart=request.apart)

    def adopt_reply(self, number: int) -> None:
        """What it waits for is due now."""
        if reply := self.replies.get(number):
            reply.apart, reply.due = False, min(reply.due, self._clock())

    def _hear(self, request: Hear | FinishTurn, result: Result) -> None:
        encoder = self.encoder()
        turn = self.turns.get(request.turn)
        if turn is None:
            turn = self.turns[request.turn] = _Turn(encoder.add())
        encoder.push(turn.member, request.wave)
        turn.due, turn.asked_at = request.due, self._clock()
        turn.result, turn.codes, turn.cost_s = result, [], 0.0
        turn.finishes = isinstance(request, FinishTurn)
        if not turn.finishes and not turn.member.waiting:
            self._answer(turn, [])  # the sound completes no code

    def _peek(self, request: PeekTurn, result: Result) -> None:
        encoder, turn = self.encoder(), self.turns.get(request.turn)
        member = encoder.fork(turn.member) if turn else encoder.add()
        encoder.push(member, request.wave)
        forked = self.turns[request.fork] = _Turn(member, request.due, self._clock(), result)
        forked.finishes = forked.apart = True

    def _render(self, request: Render, result: Result) -> None:
        reply = self.replies[request.reply.reply]
        reply.batch.push(reply.member, request.codes)
        if request.last:
            reply.batch.end(reply.member)
        reply.due, reply.asked_at = request.due, self._clock()
        reply.result, reply.pieces, reply.cost_s = result, [], 0.0
        reply.last, reply.apart = request.last, request.apart
        if not reply.member.ready:
            self._rendered(request.reply.reply, reply)

    def end_turn(self, number: int) -> None:
        if turn := self.turns.get(number):
            turn.ended = True
            if not turn.running:
                self._answer(turn, turn.codes)

    def close_turn(self, number: int) -> None:
        """Idempotent."""
        if turn := self.turns.pop(number, None):
            self.encoder().cancel(turn.member)
            if turn.result:
                settle(turn.result, MossliveError("this turn was closed"))

    def close_reply(self, number: int) -> None:
        """Idempotent."""
        if reply := self.replies.pop(number, None):
            reply.batch.cancel(reply.member)
            if reply.result:
                settle(reply.result, MossliveError("this reply was closed"))

    # Steps.

    def work(self) -> Iterator[Work]:
        """What can be part of a step."""
        for number, turn in self.turns.items():
            if turn.result is not None and not turn.running:
                yield Work(number, "finish" if turn.finishes else "hear", turn.due, turn.apart)
        for number, reply in self.replies.items():
            if reply.result is not None and not reply.running:
                stage: Stage = "first" if reply.member.stage == "first" else "render"
                yield Work(number, stage, reply.due, reply.apart, reply.member.overlaps)

    def asked_at(self, work: Work) -> float:
        """When the request was made that this work is a part of."""
        table: dict[int, Any] = self.turns if work.stage in ("hear", "finish") else self.replies
        asked_at: float = table[work.key].asked_at
        return asked_at

    def waiting_for(self, step: Step) -> list[int]:
        """All open turns, or all open replies: those whose end frees pages that the step needs."""
        return list(self.turns if step.lane == "hear" else self.replies)

    @property
    def unheard(self) -> int:
        """Replies whose listener has no sound yet."""
        listened = (reply for reply in self.replies.values() if not reply.apart)
        return sum(reply.member.stage == "first" for reply in listened)

    def start(self, step: Step) -> tuple[Step, Running]:
        """Starts the step, or a part of it: replies of one batch. Returns what it started."""
        members = self._of(step)
        if step.lane == "hear":
            encoder = self.encoder()
            start = encoder.finish if step.stage == "finish" else encoder.start
            running = start([one.member for one in members])
        else:
            batch = members[0].batch
            step = Step(step.stage, [key for key in step.keys if self.replies[key].batch is batch])
            members = self._of(step)
            running = batch.start([one.member for one in members], urgent=step.stage == "first")
        for one in members:
            one.running = True
        return step, running

    def settle(self, step: Step, results: dict[Any, Any], cost_s: float) -> set[int]:
        """The results of a step that ended, by member of the batch. Returns the turns and replies
        that the batch left out for want of pages: they still wait."""
        self._health.over(step.lane)
        self._health.succeeded(_KINDS[step.stage])
        left_out, broken = set(), []
        for number in step.keys:
            table: dict[int, Any] = self.turns if step.lane == "hear" else self.replies
            one = table.get(number)
            if one is None:
                continue
            one.running = False
            if one.member not in results:
                left_out.add(number)
            elif not _is_finite(results[one.member]):
                broken.append(number)
            elif step.lane == "hear":
                self._heard(number, one, results[one.member], cost_s)
            else:
                self._sounded(number, one, results[one.member], cost_s)
        if broken:
            error = NotFinite("the codec computed values that are not finite numbers")
            self.fail(Step(step.stage, broken), error)
        return left_out

    def fail(self, step: Step, error: Exception) -> None:
        """Ends the members of a step with an error. Raises `DeviceLost`: then all members end."""
        raise_if_lost(error)
        self._health.over(step.lane)
        if is_failure(error):
            self._health.failed(_KINDS[step.stage], error)
        for number in step.keys:
            table: dict[int, Any] = self.turns if step.lane == "hear" else self.replies
            if (one := table.get(number)) and one.result:
                result, one.result = one.result, None
                settle(result, error)
            (self.close_turn if step.lane == "hear" else self.close_reply)(number)

    def give_up(self, error: Exception) -> None:
        """The thread ends."""
        for one in (*self.turns.values(), *self.replies.values()):
            if one.result:
                settle(one.result, error)
                one.result = None

    def _of(self, step: Step) -> list[Any]:
        table: dict[int, Any] = self.turns if step.lane == "hear" else self.replies
        return [table[number] for number in step.keys]

    def _heard(self, number: int, turn: _Turn, heard: Any, cost_s: float) -> None:
        turn.cost_s += cost_s
        if turn.finishes:
            del self.turns[number]
            self._answer(turn, heard)
            return
        turn.codes += heard
        if turn.ended or not turn.member.waiting:
            self._answer(turn, turn.codes)

    def _sounded(self, number: int, reply: _Reply, sound: Samples, cost_s: float) -> None:
        reply.pieces.append(sound)
        reply.cost_s += cost_s
        if not reply.member.ready:
            self._rendered(number, reply)

    def _rendered(self, number: int, reply: _Reply) -> None:
        pieces = reply.pieces
        self._answer(reply, np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.float32))
        if reply.last:
            self.close_reply(number)

    def _answer(self, one: _Member, value: Any) -> None:
        result, one.result = one.result, None
        if result is not None:
            settle(result, Done(value, one.cost_s))

    def encoder(self) -> EncoderBatchLike:
        """The batch of all turns."""
        if self._encoder is None:
            self._encoder = self._codec.encoder_batch()
        return self._encoder

    def _batch(self, chunk: int, tail: TailRule) -> DecoderBatchLike:
        """The batch of all replies with this chunk and tail."""
        if (chunk, tail) not in self._batches:
            self._batches[chunk, tail] = self._codec.decoder_batch(chunk, tail=tail)
        return self._batches[chunk, tail]


def _is_finite(result: Any) -> bool:
    """Of a step for one member: sound, codes, or a whole turn. Sound by its sum, the fastest test:
    NaN and infinities remain in it, and sound is too small to overflow. The encoder's code for
    values that are not finite is -1."""
    if isinstance(result, np.ndarray):
        return bool(np.isfinite(result.sum()))
    codes: list[int] = getattr(result, "codes", result)
    return not codes or min(codes) >= 0
