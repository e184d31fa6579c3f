"""A live conversation: sound and text in, events out.

Connects `UserInput`, which detects the user's turns, with `TurnController`, which handles turns and
replies. All calls are made on one event loop and return at once, except `settled`, `warm` and
`close`. Each call first processes all sound that was pushed before it. Knows no audio devices, no
network and no wall clock: transports push sound and read `events`.
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
from mosslive.talk.codec_service import CodecService
from mosslive.talk.dialogue import Dialogue, HistoryTurn, require_whole
from mosslive.talk.events import ContextTrimmed, Event, EventQueue
from mosslive.talk.settings import TalkSettings
from mosslive.talk.smart_turn import EndModel
from mosslive.talk.speculative_reply import SpeculationRoom
from mosslive.talk.speech_codec import SpeechCodec
from mosslive.talk.turn_controller import TurnController
from mosslive.talk.user_input import UserInput
from mosslive.talk.vad import Speech, VoiceActivity, vad_threads

_SHORT = 1000  # characters that may be tokenised on the event loop: 1 to 4 ms at most


class Talk:
    def __init__(
        self,
        engine: Engine,
        codec: SpeechCodec | CodecService | None,
        voice: Voice | None,
        settings: TalkSettings | None = None,
        *,
        turns: Sequence[HistoryTurn] = (),
        vad: VoiceActivity | None = None,
        end_model: EndModel | None = None,
        room: SpeculationRoom | None = None,
        clock: Clock | None = None,
        threads: Executor | Literal["shared"] | None = "shared",
    ) -> None:
        """`codec`: a codec, or the worker that many conversations share; None: the conversation is
        in text. `voice`: None: replies are in text. `turns`: earlier turns, as `load_turns` returns
        them; no system turn is added to them. `vad`: None: Silero's, unless `settings.turns` is
        None. `end_model`: None: Smart Turn, if the end rule uses a model. `room`: for speculative
        replies, shared with other conversations; None: always. `threads`: where VAD and end model
        run; None: on the event loop."""
        self.settings = settings or TalkSettings()
        self.clock: Clock = clock or WallClock()
        self.voice = voice
        self._closed = False
        rate_hz = codec.sample_rate if codec else 0
        self._events = EventQueue(self.clock, math.ceil(self.settings.unread_s * rate_hz))
        dialogue = self._begin(engine, turns)
        self._own_codec: CodecService | None = None
        if codec is not None and not isinstance(codec, CodecService):
            codec = self._own_codec = CodecService(
                codec, clock=self.clock.now, priority=engine.priority
            )
        self.codec = codec
        self._controller = TurnController(
            dialogue,
            self.codec,
            voice,
            engine.tokenizer,
            self.settings,
            self.clock,
            self._events,
            room,
        )
        self._input = UserInput(
            self._controller,
            self.settings,
            vad,
            end_model,
            vad_threads() if threads == "shared" else threads,
            self.clock,
            self._events,
        )

    # The user.

    def push_audio(self, pcm: Pcm, rate_hz: int, speech: Speech | None = None) -> None:
        """Sound from the microphone, any amount: float in [-1, 1] or int16, [n] or [n, channels].
        The rate may change between turns. `speech`: the VAD's results for this sound, if another
        process has computed them; then they come with all sound of a stream."""
        self._require_open()
        self._events.check()
        if self.codec is None:
            raise MossliveError(
                "sound was pushed, but this conversation has no codec; use push_text, or create "
                "the conversation with a codec"
            )
        self._kind(None)  # raises now, not at the end of the turn, if no reply is possible
        # A copy: the caller may reuse its buffer before the sound is processed.
        self._input.push(mono(pcm).clone(), check_rate(rate_hz), speech)

    def push_text(self, text: str, reply: ReplyKind | None = None) -> None:
        """A turn of the user in text. Interrupts a reply that is being given."""
        self._ready()
        kind = self._kind(reply)
        if self._controller.listening:
            raise MossliveError("the user is speaking; commit or clear that turn first")
        rows = self._controller.dialogue.format.turn(Turn("user", text=text))
        self._controller.write(self._controller.next_turn(), rows, kind)

    def say(self, role: Role, said: str | Recording) -> int:
        """A turn without a reply, as text or as the user's sound, after all turns in progress.
        Returns its number."""
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
            raise refuse("said", said, "text, or a mosslive.codec.Sound")
        elif (codec := self.codec) is None:
            raise MossliveError(
                "say was given sound, but this conversation has no codec; use text, or create the "
                "conversation with a codec"
            )
        else:
            wave, rate_hz = mono(said.wave).clone(), check_rate(said.rate_hz)

            async def spoken() -> list[Row]:
                return form.turn(Turn(role, codes=await codec.encode(wave, rate_hz)))

            self._controller.say(turn, role, "speech", spoken)
        self._controller.last_turn = turn
        return turn

    async def stored(self, turn: int) -> None:
        """Waits until a turn of `say` is part of the conversation, or has failed. Returns at once
        for other turns."""
        await self._controller.stored(turn)

    def commit(self, reply: ReplyKind | None = None) -> bool:
        """Ends the user's turn here (push to talk). False: there is none."""
        self._ready()
        kind = self._kind(reply)
        return self._input.commit(kind)

    def clear(self) -> None:
        """Drops the user's turn in progress."""
        self._require_open()
        self._input.clear()

    # Replies.

    def respond(self, reply: ReplyKind | None = None) -> int:
        """Starts a reply without a new turn of the user. Returns its number."""
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
        self._input.catch_up()
        return self._controller.interrupt()

    def played(self, samples: int) -> None:
        """Reports how much of the current reply the client has played, if it knows."""
        if not isinstance(samples, int):
            raise refuse("samples", samples, "a whole number")
        reply = self._controller.reply
        if reply and reply.sound:
            reply.sound.playback.report(samples, self.clock.now())

    # Changes.

    def edit(self, change: Callable[[list[HistoryTurn]], Sequence[HistoryTurn]]) -> None:
        """Replaces the turns by `change(turns)`, soon, and before any later turn. Not while a reply
        is given."""
        self._ready()
        if not callable(change):
            raise refuse("change", change, "a function from turns to turns")
        if self.replying:
            raise MossliveError("a reply is being given; cancel it first")
        self._controller.edit(change)

    def change(self, settings: TalkSettings, voice: Voice | None = None) -> None:
        """New settings, and a new voice if given, from the next turn and the next reply on. The
        history, its system turn and the limits `context_rows`, `keep` and `unread_s` stay."""
        self._ready()
        if not isinstance(settings, TalkSettings):
            raise refuse("settings", settings, "TalkSettings")
        self._input.change(settings)
        self.settings, self.voice = settings, voice or self.voice
        self._controller.change(settings, self.voice)

    @property
    def can_hear(self) -> bool:
        """Whether sound can be pushed: there is a codec, and a voice for replies in speech."""
        return self.codec is not None and (self.settings.reply == "text" or self.voice is not None)

    @property
    def listening(self) -> bool:
        """Whether a spoken turn of the user is in progress."""
        return self._controller.listening is not None

    @property
    def replying(self) -> bool:
        """From the end of the user's turn until the last sample of the reply is heard."""
        return self._controller.reply is not None

    @property
    def reply_codes(self) -> tuple[list[int], bool]:
        """The codes of the current reply so far, and whether the model has ended it."""
        reply = self._controller.reply
        return (reply.codes, reply.generated) if reply else ([], True)

    def on_reply_over(self, call: Callable[[], None]) -> None:
        """Calls `call` on the event loop soon after `replying` has become False. The next reply may
        have begun by then, so `call` must check `replying`."""
        self._controller.on_reply_over = call

    def catch_up(self) -> None:
        """Processes all sound pushed so far; its events can be taken when this returns."""
        self._require_open()
        self._input.catch_up()

    def take_event(self) -> Event | None:
        """The next event, or None. For the reader of `events`, which continues after it."""
        return self._events.take()

    async def events(self) -> AsyncIterator[Event]:
        """For one reader. Ends when the conversation is closed."""
        while (event := await self._events.get()) is not None:
            yield event

    @property
    def turns(self) -> list[HistoryTurn]:
        """The closed turns so far; `save_turns` writes them to a file."""
        return list(self._controller.dialogue.turns)

    async def settled(self) -> list[HistoryTurn]:
        """Waits until `turns` has all turns so far, and returns it. Does not wait for a spoken turn
        in progress. Events must be read meanwhile."""
        self._input.catch_up()
        if not self.listening:
            await self._controller.settled()
        return self.turns

    async def warm(self) -> None:
        """Does the one-time work that the first turn would wait for."""
        if self.codec:
            await self._input.warm()
        if self.codec and self.voice:
            await self.codec.warm(self.voice, self.settings.chunk, tail=self.settings.tail)
        await self._controller.dialogue.conversation.settled()

    async def close(self) -> None:
        """Ends everything and frees all memory. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._input.close()
        await self._controller.close()
        if self._own_codec:
            await self._own_codec.close()
        self._events.close()

    # Helpers.

    def _begin(self, engine: Engine, turns: Sequence[HistoryTurn]) -> Dialogue:
        settings, turns = self.settings, list(turns)
        dialogue = Dialogue.open(
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
        """Before a call that may cause events: processes all pushed sound."""
        self._require_open()
        self._events.check()
        self._input.catch_up()

    def _require_open(self) -> None:
        if self._closed:
            raise MossliveError("the conversation is closed")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise MossliveError(
                "no event loop is running; call the methods of Talk on one event loop"
            ) from None
