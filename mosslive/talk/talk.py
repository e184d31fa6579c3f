"""A live conversation: sound and text in, events out.

Joins an ear, which says when the user speaks, to the exchange, which listens and replies. All calls
but `settled`, `warm` and `close` return at once, and are made on one event loop; each finds all
sound heard that was pushed before it. Knows no devices, no network and no wall clock: transports
push sound and read `events`.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from typing import Literal

from mosslive.codec.sound import Pcm, check_rate, mono
from mosslive.codec.sound import Sound as Recording
from mosslive.codec.voice import Voice
from mosslive.config import refuse
from mosslive.engine.engine import Engine
from mosslive.errors import MossliveError
from mosslive.rows import DRIVER_SYSTEM, ReplyKind, Role, Row, Turn, check_reply
from mosslive.talk.clock import Clock, WallClock
from mosslive.talk.codec_worker import CodecWorker
from mosslive.talk.dialogue import Dialogue, HistoryTurn, require_whole
from mosslive.talk.event_queue import EventQueue
from mosslive.talk.events import ContextTrimmed, Event
from mosslive.talk.settings import TalkSettings
from mosslive.talk.speech_codec import SpeechCodec
from mosslive.talk.turn_controller import TurnController
from mosslive.talk.user_input import UserInput
from mosslive.talk.vad import VoiceActivity
from mosslive.talk.vad_worker import vad_threads

_SHORT = 1000  # characters that are tokenised on the event loop: 1 to 4 ms at most


class Talk:
    def __init__(
        self,
        engine: Engine,
        codec: SpeechCodec | CodecWorker | None,
        voice: Voice | None,
        settings: TalkSettings | None = None,
        *,
        turns: Sequence[HistoryTurn] = (),
        vad: VoiceActivity | None = None,
        clock: Clock | None = None,
        threads: Executor | Literal["shared"] | None = "shared",
    ) -> None:
        """`codec`: a codec, or the thread that many conversations share; without one nothing is
        heard or spoken, without a voice nothing is spoken. `turns`: what was said before, as
        `load_turns` gives it; no other system turn is added then. `vad`: default Silero's, where
        turns are listened for. `threads`: where it listens; None: on the event loop."""
        self.settings = settings or TalkSettings()
        self.clock: Clock = clock or WallClock()
        self.voice = voice
        self._closed = False
        rate_hz = codec.sample_rate if codec else 0
        self._events = EventQueue(self.clock, math.ceil(self.settings.unread_s * rate_hz))
        dialogue = self._begin(engine, turns)
        self._own_codec: CodecWorker | None = None
        if codec is not None and not isinstance(codec, CodecWorker):
            codec = self._own_codec = CodecWorker(
                codec, clock=self.clock.now, priority=engine.priority
            )
        self.codec = codec
        self._controller = TurnController(
            dialogue, self.codec, voice, engine.tokenizer, self.settings, self.clock, self._events
        )
        self._speech = UserInput(
            self._controller,
            self.settings,
            vad,
            vad_threads() if threads == "shared" else threads,
            self.clock,
            self._events,
        )

    # The user's side.

    def push_audio(self, pcm: Pcm, rate_hz: int) -> None:
        """Sound from the microphone, any amount: float in [-1, 1] or int16, [n] or [n, channels].
        The rate may change between turns."""
        self._require_open()
        self._events.check()
        if self.codec is None:
            raise MossliveError(
                "sound was pushed; this conversation has no codec and is in writing"
            )
        self._kind(None)  # whether a turn can be answered is said now, not at its end
        # A copy: the caller may fill its buffer anew before the sound is heard.
        self._speech.push(mono(pcm).clone(), check_rate(rate_hz))

    def push_text(self, text: str, reply: ReplyKind | None = None) -> None:
        """A turn of the user in writing; interrupts a reply that is being given."""
        self._ready()
        kind = self._kind(reply)
        if self._controller.listening:
            raise MossliveError("the user is speaking; commit or clear that turn first")
        rows = self._controller.dialogue.format.turn(Turn("user", text=text))
        self._controller.write(self._controller.next_turn(), rows, kind)

    def say(self, role: Role, said: str | Recording) -> int:
        """A turn that nobody answers yet, written, or spoken by the user; it stands after all that
        is being said now. Returns its number."""
        self._ready()
        form, turn = self._controller.dialogue.format, self._controller.last_turn + 1
        if isinstance(said, str) and len(said) > _SHORT:
            written = Turn(role, text=said)

            async def tokenised() -> list[Row]:
                return await asyncio.to_thread(form.turn, written)

            self._controller.say(turn, role, "text", tokenised)
        elif isinstance(said, str):
            self._controller.say(turn, role, "text", form.turn(Turn(role, text=said)))
        elif not isinstance(said, Recording):
            raise refuse("said", said, "words, or a mosslive.codec.Sound")
        elif (codec := self.codec) is None:
            raise MossliveError("sound was said; this conversation has no codec and is in writing")
        else:
            wave, rate_hz = mono(said.wave).clone(), check_rate(said.rate_hz)

            async def spoken() -> list[Row]:
                return form.turn(Turn(role, codes=await codec.encode(wave, rate_hz)))

            self._controller.say(turn, role, "speech", spoken)
        self._controller.last_turn = turn
        return turn

    def commit(self, reply: ReplyKind | None = None) -> bool:
        """The user's turn ends here (push to talk). False: nobody was speaking."""
        self._ready()
        kind = self._kind(reply)
        return self._speech.commit(kind)

    def clear(self) -> None:
        """Forgets the turn of the user that is being spoken."""
        self._require_open()
        self._speech.clear()

    # The assistant's side.

    def respond(self, reply: ReplyKind | None = None) -> int:
        """A reply to what has been said, without a new turn of the user. Returns its number."""
        self._ready()
        kind = self._kind(reply)
        if self._controller.listening or self.replying:
            raise MossliveError("a turn is in progress; commit, clear or cancel it first")
        turn = self._controller.next_turn()
        self._controller.respond(kind, turn)
        return turn

    def cancel(self) -> bool:
        """Interrupts the reply, as the user's speech would. False: there is none."""
        self._require_open()
        self._speech.catch_up()
        return self._controller.interrupt()

    def played(self, samples: int) -> None:
        """How much of the current reply the other side has played, where it knows."""
        if not isinstance(samples, int):
            raise refuse("samples", samples, "a whole number")
        answer = self._controller.answer
        if answer and answer.sound:
            answer.sound.playback.report(samples, self.clock.now())

    # Changes.

    def edit(self, change: Callable[[list[HistoryTurn]], Sequence[HistoryTurn]]) -> None:
        """What was said becomes something else: `change` is given the turns and returns those that
        count, soon, and before anything that is said later. Not while a reply is given."""
        self._ready()
        if not callable(change):
            raise refuse("change", change, "a function from turns to turns")
        if self.replying:
            raise MossliveError("a reply is being given; cancel it first")
        self._controller.edit(change)

    def change(self, settings: TalkSettings, voice: Voice | None = None) -> None:
        """New settings, and a new voice if given, from the next turn and the next reply on. What
        was said stays, the system turn too; so do the limits of memory."""
        self._ready()
        if not isinstance(settings, TalkSettings):
            raise refuse("settings", settings, "TalkSettings")
        self._speech.change(settings)
        self.settings, self.voice = settings, voice or self.voice
        self._controller.change(settings, self.voice)

    @property
    def listening(self) -> bool:
        """While a turn of the user is being heard."""
        return self._controller.listening is not None

    @property
    def replying(self) -> bool:
        """From the end of the user's turn until the last sample of the reply is heard."""
        return self._controller.answer is not None

    def on_reply_over(self, call: Callable[[], None]) -> None:
        """`call` is called on the event loop soon after `replying` has become False. It looks at
        `replying` itself: the next reply may have begun."""
        self._controller.on_reply_over = call

    def catch_up(self) -> None:
        """All sound pushed so far is heard when this returns; its events can be taken."""
        self._require_open()
        self._speech.catch_up()

    def take_event(self) -> Event | None:
        """The next event if one waits. For the reader of `events`, which goes on after it."""
        return self._events.take()

    async def events(self) -> AsyncIterator[Event]:
        """For one reader. Ends when the conversation is closed."""
        while (event := await self._events.get()) is not None:
            yield event

    @property
    def turns(self) -> list[HistoryTurn]:
        """What was said so far, whole turns only; `save_turns` writes it to a file."""
        return list(self._controller.dialogue.turns)

    async def settled(self) -> list[HistoryTurn]:
        """`turns`, once all that was said until now stands there. A turn of the user that is being
        heard is not waited for. Events are to be read meanwhile."""
        self._speech.catch_up()
        if not self.listening:
            await self._controller.settled()
        return self.turns

    async def warm(self) -> None:
        """Loads what the first turn would otherwise wait for."""
        if self.codec:
            await self._speech.warm()
        if self.codec and self.voice:
            await self.codec.warm(self.voice, self.settings.chunk, tail=self.settings.tail)
        await self._controller.dialogue.conversation.settled()

    async def close(self) -> None:
        """Ends everything and gives all memory back. Again is fine."""
        if self._closed:
            return
        self._closed = True
        self._speech.close()
        await self._controller.close()
        if self._own_codec:
            await self._own_codec.close()
        self._events.close()

    # Small things.

    def _begin(self, engine: Engine, turns: Sequence[HistoryTurn]) -> Dialogue:
        settings, turns = self.settings, list(turns)
        dialogue = Dialogue(
            engine,
            settings.context_rows,
            settings.keep,
            lambda turns, rows: self._events.put(ContextTrimmed(turns, rows)),
        )
        system = DRIVER_SYSTEM[settings.reply] if settings.system is None else settings.system
        try:
            require_whole(turns, dialogue.format)
            dialogue.say_all(turns)
            if system and not turns:
                dialogue.say("system", "text", dialogue.format.turn(Turn("system", text=system)))
        except BaseException:
            dialogue.close()
            raise
        return dialogue

    def _kind(self, reply: ReplyKind | None) -> ReplyKind:
        kind = self.settings.reply if reply is None else reply
        check_reply(kind)
        if kind == "speech" and not (self.codec and self.voice):
            raise refuse("reply", kind, "text: this conversation has no codec or no voice")
        return kind

    def _ready(self) -> None:
        """Before a call that may bring events: what was pushed is heard."""
        self._require_open()
        self._events.check()
        self._speech.catch_up()

    def _require_open(self) -> None:
        if self._closed:
            raise MossliveError("the conversation is closed")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise MossliveError(
                "a conversation is held on an event loop; none is running"
            ) from None
