"""Turn taking: the user's turn in progress, the speculative reply, the reply being given.

Every change of the dialogue is a task of the dialogue queue. A task that repairs the dialogue after
an interruption takes the place of the interrupted task, so that later tasks find it repaired. Calls
return at once. Runs on the event loop. Knows nothing of segmenters, packets or transports.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from torch import Tensor

from mosslive.codec.voice import Voice
from mosslive.rows import ReplyKind, Role, Row, TextTokenizer
from mosslive.talk.clock import Clock
from mosslive.talk.codec_service import CodecService
from mosslive.talk.dialogue import CLOSING_ROWS, Dialogue
from mosslive.talk.dialogue_queue import Change, DialogueQueue, Edits
from mosslive.talk.events import EventQueue
from mosslive.talk.reply import LiveReply, ReplyFactory
from mosslive.talk.settings import TalkSettings
from mosslive.talk.speculative_reply import Speculation, SpeculationRoom, SpeculativeReply
from mosslive.talk.timing import Stopwatch
from mosslive.talk.user_turn import UserTurn

_TURN_ROWS = 375  # 30 s of speech: room that is made after a reply, so that no turn waits for it


class TurnController:
    def __init__(
        self,
        dialogue: Dialogue,
        codec: CodecService | None,
        voice: Voice | None,
        tokenizer: TextTokenizer,
        settings: TalkSettings,
        clock: Clock,
        events_out: EventQueue,
        room: SpeculationRoom | None = None,
    ) -> None:
        """Without a codec or a voice, the caller must not ask for what needs it. `room`: for
        speculative replies; None: always."""
        self.dialogue = dialogue
        self.listening: UserTurn | None = None  # while the user speaks
        self.on_reply_over: Callable[[], None] = lambda: None  # called soon after `reply` is None
        self._reply: LiveReply | None = None
        self.queue = DialogueQueue()
        self._codec, self._clock, self._events = codec, clock, events_out
        self._factory = ReplyFactory(codec, voice, tokenizer, settings, clock, events_out)
        self.last_turn = 0  # the latest number given
        self._turn = 0  # the number of the turn in progress
        # Turns that could not be encoded or written, and so get no reply. Only the latest ones: no
        # reply to an older turn can still begin.
        self._lost: deque[int] = deque(maxlen=16)
        self._storing: dict[int, asyncio.Task[None]] = {}  # of `say`, by turn
        self._user_task: asyncio.Task[None] | None = None  # runs `listening`
        self._reply_task: asyncio.Task[None] | None = None  # runs `reply`
        self._speculation = Speculation(self.queue, self._run_reply, room or SpeculationRoom())
        self._edits = Edits(self._begin_edits, events_out)

    @property
    def reply(self) -> LiveReply | None:
        """The reply being given, until its last sample is heard."""
        return self._reply

    @reply.setter
    def reply(self, reply: LiveReply | None) -> None:
        over = self._reply is not None and reply is None
        self._reply = reply
        if over:  # soon, not now: the caller may be in the middle of its change
            asyncio.get_running_loop().call_soon(lambda: self.on_reply_over())

    def next_turn(self) -> int:
        self.last_turn += 1
        return self.last_turn

    # The user's turns. `turn` is the number of the turn.

    def listen(self, turn: int, rate_hz: int, interrupt: bool = True) -> None:
        """The user speaks. Interrupts a reply being given, or the user's turn waits for its end."""
        assert self._codec is not None, "sound needs a codec"
        self._turn = turn
        if interrupt:
            self.interrupt()
        user_turn = self.listening = UserTurn(
            self.dialogue,
            self._codec,
            rate_hz,
            self._clock,
            reply_rows=self._factory.settings.sampling.max_new,
            turn=turn,
        )

        async def run() -> None:
            try:
                await user_turn.run()
            except Exception as error:
                user_turn.failed = True
                self._lost.append(turn)
                self._events.fault(turn, "listening", error)
                with self._events.fatal_faults(turn):
                    self.dialogue.drop_open()

        self._user_task = self.queue.submit(run)

    def feed(self, wave: Tensor) -> None:
        if self.listening:
            self.listening.feed(wave)

    def end_turn(self, kind: ReplyKind | None, speech_end: float) -> None:
        """The user has finished. `kind`: of the reply; None: no reply yet. `speech_end`: when the
        last of the speech arrived."""
        user_turn, self.listening = self.listening, None
        if user_turn is None:
            return
        if kind is None:
            self.resume()
            user_turn.end(Stopwatch(self._turn, "text"))
            return
        if self._edits.pending:
            self.resume()  # the branch of the dialogue lacks them
        now = self._clock.now()
        if taken := self._speculation.take(kind):
            speculative, task = taken
            speculative.reply.stopwatch.set(
                speech_end=speech_end, turn_detected=now, speculative=True
            )
            self._adopt(speculative, task)
            return
        self.resume()
        stopwatch = Stopwatch(self._turn, kind)
        stopwatch.set(speech_end=speech_end, turn_detected=now)
        user_turn.end(stopwatch)
        self._start_reply(self._factory.make(self._turn, stopwatch))

    def drop_turn(self) -> None:
        """Drops the user's turn in progress."""
        self.resume()
        self.listening, task = None, self._user_task
        assert task is not None, "no turn is in progress"
        task.cancel()

        async def drop() -> None:
            with self._events.fatal_faults(self._turn):
                self.dialogue.drop_open()

        self.queue.submit_after(task, drop)

    def write(self, turn: int, rows: Sequence[Row], kind: ReplyKind) -> None:
        """A turn of the user in text, and its reply. Interrupts a reply being given."""
        self._turn = turn
        self.interrupt()
        self.say(turn, "user", "text", rows)
        self.respond(kind)

    def say(
        self,
        turn: int,
        role: Role,
        kind: ReplyKind,
        rows: Sequence[Row] | Callable[[], Awaitable[Sequence[Row]]],
    ) -> None:
        """A whole turn without a reply, after all turns in progress. `rows`: the rows, or a
        function that makes them when the turn's task runs. `stored` waits for it."""

        async def work() -> None:
            try:
                said = rows if isinstance(rows, Sequence) else await rows()
                self.dialogue.say(role, kind, said, self._reserve, turn)
            except Exception as error:
                self._lost.append(turn)
                self._events.fault(turn, "memory", error)

        task = self._storing[turn] = self.queue.submit(work)
        task.add_done_callback(lambda _: self._storing.pop(turn, None))

    async def stored(self, turn: int) -> None:
        """Waits until the task of `say` for this turn has ended, whatever its result."""
        if task := self._storing.get(turn):
            await asyncio.wait([task])

    def edit(self, change: Change) -> None:
        """Replaces closed turns, not while a reply is given. It may run while the user speaks: the
        open turn stays, and the edit waits for it only if something was submitted since it began.
        Edits with nothing submitted between them share one task."""
        assert self.reply is None, "a reply is being given"
        self.resume()
        if self._edits.pending and self.queue.is_last(self._edits.task):
            self._edits.add(self._turn, change)
            return
        edits = self._edits = Edits(self._begin_edits, self._events)
        edits.add(self._turn, change)
        user_task = self._user_task
        if self.listening and user_task is not None and self.queue.is_last(user_task):
            edits.task = self.queue.run_concurrently(edits.run, user_task)
            self.queue.join(edits.task, user_task)
        else:
            edits.task = self.queue.submit(edits.run)

    def change(self, settings: TalkSettings, voice: Voice | None) -> None:
        """For the next turn and the next reply."""
        if settings != self._factory.settings or voice is not self._factory.voice:
            self.resume()  # the speculative reply was made with the old ones
        self._factory.settings, self._factory.voice = settings, voice

    # Replies.

    def respond(self, kind: ReplyKind, turn: int | None = None) -> None:
        self._turn = self._turn if turn is None else turn
        stopwatch = Stopwatch(self._turn, kind)
        stopwatch.set(turn_detected=self._clock.now())
        self._start_reply(self._factory.make(self._turn, stopwatch))

    def interrupt(self) -> bool:
        """False: no reply is being given."""
        reply, task = self.reply, self._reply_task
        if reply is None or task is None:
            return False
        self.reply = None
        reply.stop()
        task.cancel()

        async def fix_history() -> None:
            with self._events.fatal_faults(reply.turn):
                await reply.fix_history()

        self.queue.submit_after(task, fix_history)
        return True

    def pause(self, kind: ReplyKind, over_at: float) -> None:
        """The user may have finished: begins a speculative reply, if there is room for it.
        `over_at`: when the turn will be over, if the user does not continue."""
        user_turn = self.listening
        if user_turn is None or user_turn.failed or not self._speculation.has_room:
            return
        stopwatch = Stopwatch(self._turn, kind)
        stopwatch.set(begun=self._clock.now())
        reply = self._factory.make(self._turn, stopwatch, over_at)
        self._speculation.begin(SpeculativeReply(user_turn, reply, over_at))

    def resume(self) -> None:
        """The user continues: drops the speculative reply."""
        self._speculation.drop()

    async def settled(self) -> None:
        """Waits until all tasks submitted so far are done."""

        async def nothing() -> None:
            pass

        await self.queue.submit(nothing)

    async def close(self) -> None:
        if self.reply:
            self.reply.stop()
        self.resume()
        await self.queue.close()
        self.dialogue.close()

    def _start_reply(self, reply: LiveReply) -> None:
        async def run() -> None:
            if reply.turn not in self._lost:  # else its fault was reported
                await reply.run(self.dialogue)

        self.reply = reply
        reply.release()
        self._reply_task = self.queue.submit(lambda: self._run_reply(reply, run))

    async def _run_reply(self, reply: LiveReply, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
            if self.reply is reply:
                self.dialogue.make_room(0, self._reserve + _TURN_ROWS)
        except Exception as error:
            self._events.fault(reply.turn, "reply", error)
            with self._events.fatal_faults(reply.turn):
                await reply.fix_history()
        finally:
            if self.reply is reply:
                self.reply = None

    def _adopt(self, speculative: SpeculativeReply, task: "asyncio.Task[None]") -> None:
        """The branch of the speculative reply becomes the conversation."""
        user_task = self._user_task
        assert user_task is not None, "a speculative reply belongs to a turn"
        user_task.cancel()
        old, self.dialogue = self.dialogue, speculative.adopt()
        old.close()
        self.queue.join(task, user_task)
        self.reply, self._reply_task = speculative.reply, task
        speculative.reply.release()

    def _begin_edits(self) -> Dialogue:
        self.resume()
        return self.dialogue

    @property
    def _reserve(self) -> int:
        return self._factory.settings.sampling.max_new + CLOSING_ROWS
