"""Who speaks: the user's turn being heard, the reply on trial, the reply being given.

Every change of the dialogue is work on the floor, one after the other; what puts right something
that was cut off takes its place there, so that all who asked later find it mended. Calls return at
once. Knows nothing of ears, packets or transports.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from torch import Tensor

from mosslive.codec.voice import Voice
from mosslive.rows import ReplyKind, Role, Row, TextTokenizer
from mosslive.talk.clock import Clock
from mosslive.talk.codec_worker import CodecWorker
from mosslive.talk.dialogue import CLOSING_ROWS, Dialogue
from mosslive.talk.dialogue_queue import DialogueQueue
from mosslive.talk.edits import Change, Edits
from mosslive.talk.event_queue import EventQueue
from mosslive.talk.faults import Faults
from mosslive.talk.reply import LiveReply
from mosslive.talk.reply_factory import ReplyFactory
from mosslive.talk.settings import TalkSettings
from mosslive.talk.speculative_reply import Speculation, SpeculativeReply
from mosslive.talk.timing import Stopwatch
from mosslive.talk.user_turn import UserTurn

_TURN_ROWS = 375  # 30 s of speech: room that is made after a reply, while nobody waits


class TurnController:
    def __init__(
        self,
        dialogue: Dialogue,
        codec: CodecWorker | None,
        voice: Voice | None,
        tokenizer: TextTokenizer,
        settings: TalkSettings,
        clock: Clock,
        events_out: EventQueue,
    ) -> None:
        """Without a codec, or a voice, nobody may ask for what needs it."""
        self.dialogue = dialogue
        self.listening: UserTurn | None = None  # while the user speaks
        self.on_reply_over: Callable[[], None] = lambda: None  # called soon after `answer` is None
        self._answer: LiveReply | None = None
        self.queue = DialogueQueue()
        self.faults = Faults(events_out.put)
        self._codec, self._clock = codec, clock
        self._factory = ReplyFactory(codec, voice, tokenizer, settings, clock, events_out)
        self.last_turn = 0  # the latest number given
        self._turn = 0  # the number of what is being said
        # Turns that could not be heard or written down, the latest: nobody answers older ones.
        self._lost: deque[int] = deque(maxlen=16)
        self._listen_task: asyncio.Task[None] | None = None  # runs `listening`
        self._reply_task: asyncio.Task[None] | None = None  # runs `answer`
        self._speculation = Speculation(self.queue, self._give)
        self._edits = Edits(self._begin_edits, self.faults)

    @property
    def answer(self) -> LiveReply | None:
        """The reply being given, until its last sample is heard."""
        return self._answer

    @answer.setter
    def answer(self, answer: LiveReply | None) -> None:
        over = self._answer is not None and answer is None
        self._answer = answer
        if over:  # soon: the caller may be in the middle of its change
            asyncio.get_running_loop().call_soon(lambda: self.on_reply_over())

    def next_turn(self) -> int:
        self.last_turn += 1
        return self.last_turn

    # The user's turns. `turn` numbers what comes.

    def listen(self, turn: int, rate_hz: int, interrupt: bool = True) -> None:
        """The user speaks. A reply being given is cut off, or what is said waits for its end."""
        assert self._codec is not None, "sound without a codec"
        self._turn = turn
        if interrupt:
            self.interrupt()
        listening = self.listening = UserTurn(
            self.dialogue,
            self._codec,
            rate_hz,
            self._clock,
            reply_rows=self._factory.settings.sampling.max_new,
            turn=turn,
            keep_sound=self._factory.settings.speculate,
        )

        async def run() -> None:
            try:
                await listening.run()
            except Exception as error:
                listening.failed = True
                self._lost.append(turn)
                self.faults.tell(turn, "listening", error)
                with self.faults.fatal(turn):
                    self.dialogue.drop_open()

        self._listen_task = self.queue.take(run)

    def feed(self, wave: Tensor) -> None:
        if self.listening:
            self.listening.feed(wave)

    def end_turn(self, reply: ReplyKind | None, speech_end: float) -> None:
        """The user has finished; `speech_end`: when the last of the speech was here. `reply`: None
        if nobody answers yet."""
        listening, self.listening = self.listening, None
        if listening is None:
            return
        if reply is None:
            self.resume()
            listening.end(Stopwatch(self._turn, "text"))
            return
        if self._edits.pending:
            self.resume()  # a branch of the dialogue lacks them
        now = self._clock.now()
        if taken := self._speculation.take(reply):
            speculative, speculative_task = taken
            speculative.answer.stopwatch.set(
                speech_end=speech_end, turn_detected=now, speculative=True
            )
            self._adopt(speculative, speculative_task)
            return
        self.resume()
        stopwatch = Stopwatch(self._turn, reply)
        stopwatch.set(speech_end=speech_end, turn_detected=now)
        listening.end(stopwatch)
        self._start_reply(self._factory.make(self._turn, stopwatch))

    def drop_turn(self) -> None:
        """What is being heard was never said."""
        self.resume()
        self.listening, hearing = None, self._listen_task
        assert hearing is not None, "nobody is heard"
        hearing.cancel()

        async def drop() -> None:
            with self.faults.fatal(self._turn):
                self.dialogue.drop_open()

        self.queue.submit_after(hearing, drop)

    def write(self, turn: int, rows: Sequence[Row], reply: ReplyKind) -> None:
        """A turn of the user in writing; a reply being given is cut off."""
        self._turn = turn
        self.interrupt()
        self.say(turn, "user", "text", rows)
        self.respond(reply)

    def say(
        self,
        turn: int,
        role: Role,
        kind: ReplyKind,
        rows: Sequence[Row] | Callable[[], Awaitable[Sequence[Row]]],
    ) -> None:
        """A whole turn that nobody answers yet, after all that is being said now. `rows`: there, or
        made when it is its turn."""

        async def work() -> None:
            try:
                said = rows if isinstance(rows, Sequence) else await rows()
                self.dialogue.say(role, kind, said, self._reserve, turn)
            except Exception as error:
                self._lost.append(turn)
                self.faults.tell(turn, "memory", error)

        self.queue.take(work)

    def edit(self, change: Change) -> None:
        """Whole turns become others, not while a reply is given. While the user speaks, too: the
        open turn stays, and is not waited for unless something was said since it began. Edits
        between which nothing was said are one piece of work."""
        assert self.answer is None, "a reply is being given"
        self.resume()
        if self._edits.pending and self.queue.is_last(self._edits.task):
            self._edits.add(self._turn, change)
            return
        edits = self._edits = Edits(self._begin_edits, self.faults)
        edits.add(self._turn, change)
        hearing = self._listen_task
        if self.listening and hearing is not None and self.queue.is_last(hearing):
            edits.task = self.queue.run_concurrently(edits.run, hearing)
            self.queue.join(edits.task, hearing)
        else:
            edits.task = self.queue.take(edits.run)

    def change(self, settings: TalkSettings, voice: Voice | None) -> None:
        """For the next turn and the next reply."""
        self._factory.settings, self._factory.voice = settings, voice

    # Replies.

    def respond(self, reply: ReplyKind, turn: int | None = None) -> None:
        self._turn = self._turn if turn is None else turn
        stopwatch = Stopwatch(self._turn, reply)
        stopwatch.set(turn_detected=self._clock.now())
        self._start_reply(self._factory.make(self._turn, stopwatch))

    def interrupt(self) -> bool:
        answer, answering = self.answer, self._reply_task
        if answer is None or answering is None:
            return False
        self.answer = None
        answer.stop()
        answering.cancel()

        async def mend() -> None:
            with self.faults.fatal(answer.turn):
                await answer.mend()

        self.queue.submit_after(answering, mend)
        return True

    def pause(self, reply: ReplyKind, over_at: float) -> None:
        """The user may have finished: a reply is begun on trial. `over_at`: when the turn will be
        over, if he has."""
        listening = self.listening
        if listening is None or not listening.can_branch:
            return
        stopwatch = Stopwatch(self._turn, reply)
        stopwatch.set(begun=self._clock.now())
        answer = self._factory.make(self._turn, stopwatch, over_at)
        self._speculation.begin(SpeculativeReply(listening, answer, over_at))

    def resume(self) -> None:
        """The user goes on: there is no reply on trial any more."""
        self._speculation.drop()

    async def settled(self) -> None:
        """Until all work so far is done."""

        async def nothing() -> None:
            pass

        await self.queue.take(nothing)

    async def close(self) -> None:
        if self.answer:
            self.answer.stop()
        self.resume()
        await self.queue.close()
        self.dialogue.close()

    def _start_reply(self, answer: LiveReply) -> None:
        async def run() -> None:
            if answer.turn not in self._lost:  # else there is nothing to answer, as was told
                await answer.run(self.dialogue)

        self.answer = answer
        answer.release()
        self._reply_task = self.queue.take(lambda: self._give(answer, run))

    async def _give(self, answer: LiveReply, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
            if self.answer is answer:
                self.dialogue.make_room(0, self._reserve + _TURN_ROWS)
        except Exception as error:
            self.faults.tell(answer.turn, "reply", error)
            with self.faults.fatal(answer.turn):
                await answer.mend()
        finally:
            if self.answer is answer:
                self.answer = None

    def _adopt(self, speculative: SpeculativeReply, speculative_task: "asyncio.Task[None]") -> None:
        """What was on trial is the conversation now."""
        hearing = self._listen_task
        assert hearing is not None, "a trial without a turn"
        hearing.cancel()
        old, self.dialogue = self.dialogue, speculative.adopt()
        old.close()
        self.queue.join(speculative_task, hearing)
        self.answer, self._reply_task = speculative.answer, speculative_task
        speculative.answer.release()

    # Small things.

    def _begin_edits(self) -> Dialogue:
        self.resume()
        return self.dialogue

    @property
    def _reserve(self) -> int:
        return self._factory.settings.sampling.max_new + CLOSING_ROWS
