"""A live conversation: sound and text in, events out.

Joins an ear, which says when the user speaks, to the exchange, which listens and replies. All calls
but `close` and `warm` return at once, and are made on one event loop. Knows no devices, no network
and no wall clock: transports push sound and read `events`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from mosslive.codec.sound import Pcm, check_rate, mono
from mosslive.codec.sound import Sound as Recording
from mosslive.codec.voice import Voice
from mosslive.config import refuse
from mosslive.engine.served import Engine
from mosslive.errors import MossliveError
from mosslive.rows import DRIVER_SYSTEM, Reply, Role, Row, Turn, check_reply
from mosslive.talk.clock import Clock, WallClock
from mosslive.talk.codec_thread import CodecThread, SpeechCodec
from mosslive.talk.dialogue import Dialogue, Said
from mosslive.talk.ear import Ear, Heard, ListeningEar, Sound, ToldEar
from mosslive.talk.events import (
    ContextTrimmed,
    Event,
    SpeechStarted,
    SpeechStopped,
    TurnDetected,
)
from mosslive.talk.exchange import Exchange
from mosslive.talk.settings import TalkSettings
from mosslive.talk.turns import Ended, Paused, Resumed, Started
from mosslive.talk.vad import SileroVad, VoiceActivity

_REMEMBERED_S = 60  # when packets came: longer than any silence that ends a turn


class Talk:
    def __init__(
        self,
        engine: Engine,
        codec: SpeechCodec | CodecThread | None,
        voice: Voice | None,
        settings: TalkSettings | None = None,
        *,
        turns: Sequence[Said] = (),
        vad: VoiceActivity | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`codec`: a codec, or the thread that many conversations share; without one nothing is
        heard or spoken, without a voice nothing is spoken. `turns`: what was said before, as
        `load_turns` gives it; no other system turn is added then. `vad`: default Silero's, where
        turns are listened for."""
        self.settings = settings or TalkSettings()
        self.clock: Clock = clock or WallClock()
        self._own_codec: CodecThread | None = None
        if codec is not None and not isinstance(codec, CodecThread):
            codec = self._own_codec = CodecThread(codec)
        self.codec = codec
        self.voice = voice
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._vad = vad
        self._ear: Ear | None = None
        self._ear_is_old = False  # its settings have changed
        self._before_s = 0.0  # sound that earlier ears have heard
        self._came: deque[tuple[int, float]] = deque()  # (samples in all, when they were here)
        self._turn = 0  # the latest number given
        self._spoken_turn = 0  # that of what the user speaks
        self._closed = False
        dialogue = Dialogue(
            engine,
            self.settings.context_rows,
            self.settings.keep,
            lambda turns, rows: self._emit(ContextTrimmed(turns, rows)),
        )
        self._begin(dialogue, turns)
        self._exchange = Exchange(
            dialogue, self.codec, voice, engine.tokenizer, self.settings, self.clock, self._emit
        )

    # The user's side.

    def push_audio(self, pcm: Pcm, rate_hz: int) -> None:
        """Sound from the microphone, any amount: float in [-1, 1] or int16, [n] or [n, channels].
        The rate may change between turns."""
        self._require_open()
        if self.codec is None:
            raise MossliveError(
                "sound was pushed; this conversation has no codec and is in writing"
            )
        reply = self._kind(None)
        wave = mono(pcm)
        ear = self._ear_at(check_rate(rate_hz))
        total = (self._came[-1][0] if self._came else 0) + len(wave)
        self._came.append((total, self.clock.now()))
        while self._came[0][0] < total - _REMEMBERED_S * rate_hz:
            self._came.popleft()
        heard = ear.push(wave, interrupting=self.replying)
        deaf = self.replying and not self.settings.barge_in and self.settings.auto_reply
        if deaf and not self.listening:
            ear.clear()
            return
        for item in heard:
            self._hear(ear, item, reply)

    def push_text(self, text: str, reply: Reply | None = None) -> None:
        """A turn of the user in writing; interrupts a reply that is being given."""
        self._require_open()
        kind = self._kind(reply)
        if self._exchange.listening:
            raise MossliveError("the user is speaking; commit or clear that turn first")
        rows = self._exchange.dialogue.format.turn(Turn("user", text=text))
        self._turn += 1
        self._exchange.write(self._turn, rows, kind)

    def say(self, role: Role, said: str | Recording) -> int:
        """A turn that nobody answers yet, written, or spoken by the user; it stands after all that
        is being said now. Returns its number."""
        self._require_open()
        form, turn = self._exchange.dialogue.format, self._turn + 1
        if isinstance(said, str):
            self._exchange.say(turn, role, "text", form.turn(Turn(role, text=said)))
        elif (codec := self.codec) is None:
            raise MossliveError("sound was said; this conversation has no codec and is in writing")
        else:
            wave, rate_hz = mono(said.wave), check_rate(said.rate_hz)

            async def spoken() -> list[Row]:
                return form.turn(Turn(role, codes=await codec.encode(wave, rate_hz)))

            self._exchange.say(turn, role, "speech", spoken)
        self._turn = turn
        return turn

    def commit(self, reply: Reply | None = None) -> bool:
        """The user's turn ends here (push to talk). False: nobody was speaking."""
        self._require_open()
        kind = self._kind(reply)
        heard = self._ear.commit() if self._ear else []
        for item in heard:
            self._hear(self._ear, item, kind)
        return bool(heard)

    def clear(self) -> None:
        """Forgets the turn of the user that is being spoken."""
        self._require_open()
        if self._ear:
            self._ear.clear()
        if self._exchange.listening:
            self._exchange.drop_turn()

    # The assistant's side.

    def respond(self, reply: Reply | None = None) -> int:
        """A reply to what has been said, without a new turn of the user. Returns its number."""
        self._require_open()
        kind = self._kind(reply)
        if self._exchange.listening or self.replying:
            raise MossliveError("a turn is in progress; commit, clear or cancel it first")
        self._turn += 1
        self._exchange.respond(kind, self._turn)
        return self._turn

    def cancel(self) -> bool:
        """Interrupts the reply, as the user's speech would. False: there is none."""
        self._require_open()
        return self._exchange.interrupt()

    def played(self, samples: int) -> None:
        """How much of the current reply the other side has played, where it knows."""
        answer = self._exchange.answer
        if answer and answer.sound:
            answer.sound.playback.report(samples, self.clock.now())

    # Changes.

    def edit(self, change: Callable[[list[Said]], Sequence[Said]]) -> None:
        """What was said becomes something else: `change` is given the turns and returns those that
        count, soon, and before anything that is said later. Not while a reply is given."""
        self._require_open()
        if self.replying:
            raise MossliveError("a reply is being given; cancel it first")
        self._exchange.edit(change)

    def change(self, settings: TalkSettings, voice: Voice | None = None) -> None:
        """New settings, and a new voice if given, from the next turn and the next reply on. What
        was said stays, the system turn too; so do the limits of memory."""
        self._require_open()
        self._ear_is_old |= settings.turns != self.settings.turns
        self.settings, self.voice = settings, voice or self.voice
        self._exchange.change(settings, self.voice)

    @property
    def listening(self) -> bool:
        """While a turn of the user is being heard."""
        return self._exchange.listening is not None

    @property
    def replying(self) -> bool:
        """From the end of the user's turn until the last sample of the reply is heard."""
        return self._exchange.answer is not None

    async def events(self) -> AsyncIterator[Event]:
        """For one reader. Ends when the conversation is closed."""
        while (event := await self._events.get()) is not None:
            yield event
        self._events.put_nowait(None)  # whoever asks again is told the same

    @property
    def turns(self) -> list[Said]:
        """What was said so far, whole turns only; `save_turns` writes it to a file."""
        return list(self._exchange.dialogue.turns)

    async def settled(self) -> list[Said]:
        """`turns`, once all that was said until now stands there. A turn of the user that is being
        heard is not waited for."""
        if not self.listening:
            await self._exchange.settled()
        return self.turns

    async def warm(self) -> None:
        """Loads what the first turn would otherwise wait for."""
        if self.codec and self.voice:
            await self.codec.warm(self.voice, self.settings.chunk)
        await self._exchange.dialogue.conversation.settled()

    async def close(self) -> None:
        """Ends everything and gives all memory back. Again is fine."""
        if self._closed:
            return
        self._closed = True
        await self._exchange.close()
        if self._own_codec:
            await self._own_codec.close()
        self._events.put_nowait(None)

    # What the ear says.

    def _hear(self, ear: Ear | None, item: Heard, reply: Reply) -> None:
        assert ear is not None, "an ear has said so"
        exchange = self._exchange
        match item:
            case Started(first):
                self._turn += 1
                turn = self._spoken_turn = self._turn
                self._emit(SpeechStarted(turn, self._before_s + first / ear.rate_hz))
                exchange.listen(turn, ear.rate_hz, self.settings.barge_in)
            case Sound(wave):
                exchange.feed(wave)
            case Paused() if self.settings.speculate and self.settings.auto_reply:
                exchange.pause(reply)
            case Resumed():
                exchange.resume()
            case Ended(speech_end):
                position_s = self._before_s + speech_end / ear.rate_hz
                self._emit(SpeechStopped(self._spoken_turn, position_s))
                self._emit(TurnDetected(self._spoken_turn))
                moments = (moment for total, moment in self._came if total >= speech_end)
                answered = reply if self.settings.auto_reply else None
                exchange.end_turn(answered, next(moments, self.clock.now()))

    def _ear_at(self, rate_hz: int) -> Ear:
        ear = self._ear
        if ear and self._exchange.listening:
            if ear.rate_hz != rate_hz:
                raise refuse("sample_rate", rate_hz, f"{ear.rate_hz} until the turn ends")
            return ear
        if ear is None or ear.rate_hz != rate_hz or self._ear_is_old:
            if ear and self._came:
                self._before_s += self._came[-1][0] / ear.rate_hz
            self._came.clear()
            self._ear_is_old = False
            ear = self._ear = self._new_ear(rate_hz)
        return ear

    def _new_ear(self, rate_hz: int) -> Ear:
        if self.settings.turns is None:
            return ToldEar(rate_hz)
        self._vad = self._vad or SileroVad()
        self._vad.reset()
        return ListeningEar(self._vad, self.settings.turns, rate_hz)

    # Small things.

    def _begin(self, dialogue: Dialogue, turns: Sequence[Said]) -> None:
        settings = self.settings
        system = DRIVER_SYSTEM[settings.reply] if settings.system is None else settings.system
        if turns:
            for said in turns:
                dialogue.say(said.role, said.kind, said.rows)
        elif system:
            dialogue.say("system", "text", dialogue.format.turn(Turn("system", text=system)))

    def _kind(self, reply: Reply | None) -> Reply:
        kind = self.settings.reply if reply is None else reply
        check_reply(kind)
        if kind == "speech" and not (self.codec and self.voice):
            raise refuse("reply", kind, "text: this conversation has no codec or no voice")
        return kind

    def _require_open(self) -> None:
        if self._closed:
            raise MossliveError("the conversation is closed")

    def _emit(self, event: Event) -> None:
        self._events.put_nowait(event)
