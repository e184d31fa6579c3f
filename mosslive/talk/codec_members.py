"""The open turns and replies of the codec service, and what each waits for.

Holds the encoder's and the decoder's batches, passes requests on to them and returns results to the
callers. Runs on the codec's thread. Does not decide when a step runs. Invariant: a turn or reply
that is finished, closed or failed holds no memory of the codec, and its caller has a result.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mosslive.codec.flow_stream import TailRule
from mosslive.engine.health import Health
from mosslive.errors import MossliveError
from mosslive.talk.codec_plan import Stage, Step, Work
from mosslive.talk.codec_requests import Done, FinishTurn, Hear, OpenReply, Render
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
    result: Result | None = None
    running: bool = False  # in a step
    cost_s: float = 0.0  # of the request in progress


@dataclass(eq=False)
class _Turn(_Member):
    finishes: bool = False
    codes: list[int] = field(default_factory=list)  # of the request in progress


@dataclass(eq=False)
class _Reply(_Member):
    batch: Any = None
    last: bool = False
    apart: bool = False
    pieces: list[Samples] = field(default_factory=list)  # of the request in progress


class Members:
    def __init__(self, codec: SpeechCodec, health: Health) -> None:
        self._codec, self._health = codec, health
        self.turns: dict[int, _Turn] = {}
        self.replies: dict[int, _Reply] = {}
        self._encoder: EncoderBatchLike | None = None
        self._batches: dict[tuple[int, TailRule], DecoderBatchLike] = {}

    # Requests.

    def accept(self, request: Hear | FinishTurn | Render, result: Result | None) -> None:
        """An error of the request is its result."""
        assert result is not None, "its caller waits for it"
        try:
            if isinstance(request, Render):
                self._render(request, result)
            else:
                self._hear(request, result)
        except Exception as error:
            if not isinstance(error, MossliveError):
                rendering = isinstance(request, Render)
                self._health.failed("opening replies" if rendering else "hearing", error)
            settle(result, error)

    def open_reply(self, request: OpenReply) -> None:
        if request.reply not in self.replies:
            batch = self._batch(request.chunk, request.tail)
            member = batch.add(request.voice, request.seed)
            self.replies[request.reply] = _Reply(member, batch=batch)

    def _hear(self, request: Hear | FinishTurn, result: Result) -> None:
        encoder = self.encoder()
        turn = self.turns.get(request.turn)
        if turn is None:
            turn = self.turns[request.turn] = _Turn(encoder.add())
        encoder.push(turn.member, request.wave)
        turn.due, turn.result, turn.codes, turn.cost_s = request.due, result, [], 0.0
        turn.finishes = isinstance(request, FinishTurn)
        if not turn.finishes and turn.member not in encoder.ready:
            self._answer(turn, [])  # the sound completes no code

    def _render(self, request: Render, result: Result) -> None:
        self.open_reply(request.reply)
        reply = self.replies[request.reply.reply]
        reply.batch.push(reply.member, request.codes)
        if request.last:
            reply.batch.end(reply.member)
        reply.due, reply.result, reply.pieces, reply.cost_s = request.due, result, [], 0.0
        reply.last, reply.apart = request.last, request.apart
        if reply.member not in reply.batch.ready:
            self._rendered(request.reply.reply, reply)

    def end_turn(self, number: int) -> None:
        turn = self.turns.get(number)
        if turn and not turn.running:
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
                yield Work(number, "finish" if turn.finishes else "hear", turn.due)
        for number, reply in self.replies.items():
            if reply.result is not None and not reply.running:
                stage: Stage = "first" if reply.member.stage == "first" else "render"
                yield Work(number, stage, reply.due, reply.apart)

    def waiting_for(self, step: Step) -> list[int]:
        """All open turns, or all open replies: those whose end frees pages that the step needs."""
        return list(self.turns if step.lane == "hear" else self.replies)

    @property
    def unheard(self) -> int:
        """Replies without any sound yet."""
        return sum(reply.member.stage == "first" for reply in self.replies.values())

    def start(self, step: Step) -> Running:
        members = self._of(step)
        if step.lane == "hear":
            encoder = self.encoder()
            start = encoder.finish if step.stage == "finish" else encoder.start
            running = start([one.member for one in members])
        else:
            # Replies of one step share a batch: the others wait for the next step.
            batch = members[0].batch
            members = [one for one in members if one.batch is batch]
            running = batch.start([one.member for one in members], urgent=step.stage == "first")
        for one in members:
            one.running = True
        return running

    def settle(self, step: Step, results: dict[Any, Any], cost_s: float) -> None:
        """The results of a step that ended, by member of the batch."""
        self._health.succeeded(_KINDS[step.stage])
        for number in step.keys:
            if step.lane == "hear":
                if turn := self.turns.get(number):
                    self._heard(number, turn, results, cost_s)
            elif reply := self.replies.get(number):
                self._sounded(number, reply, results, cost_s)

    def fail(self, step: Step, error: Exception) -> None:
        """Ends the members of a step with an error."""
        if not isinstance(error, MossliveError):  # a refusal is not a failure
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

    def _heard(self, number: int, turn: _Turn, results: dict[Any, Any], cost_s: float) -> None:
        turn.running = False
        turn.cost_s += cost_s
        heard = results[turn.member]
        if turn.finishes:
            del self.turns[number]
            self._answer(turn, heard)
            return
        turn.codes += heard
        if turn.member not in self.encoder().ready:
            self._answer(turn, turn.codes)

    def _sounded(self, number: int, reply: _Reply, results: dict[Any, Any], cost_s: float) -> None:
        reply.running = False
        if reply.member in results:
            reply.pieces.append(results[reply.member])
            reply.cost_s += cost_s
        if reply.member not in reply.batch.ready:
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
