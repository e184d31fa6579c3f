"""One reply: rows from the engine → text and codes → sound, and then a turn of the history.

Three tasks read rows, render and play, so none waits for the work of another. `stop` ends all of
them at once; `fix_history` then makes the dialogue equal to what was heard. A speculative reply
sends no event until `release`. Runs on the event loop. Knows nothing of the user's turns.
"""

import asyncio
import math
from contextlib import suppress

import numpy as np
import torch

from mosslive.codec.voice import Voice
from mosslive.config import Sampling
from mosslive.engine.conversation import ReplyStream
from mosslive.rows import ReplyKind, TextStream, TextTokenizer, Turn
from mosslive.talk.clock import Clock
from mosslive.talk.codec_service import CodecService
from mosslive.talk.codec_streams import DecodeStream
from mosslive.talk.dialogue import Dialogue, TurnEnding, close_heard, close_whole, code_rows
from mosslive.talk.events import (
    Event,
    EventQueue,
    ReplyDone,
    ReplyInterrupted,
    ReplyStarted,
    TextDelta,
    TimingReady,
)
from mosslive.talk.playback import Playback
from mosslive.talk.reply_audio import ReplyAudio
from mosslive.talk.settings import TalkSettings
from mosslive.talk.timing import Stopwatch


class LiveReply:
    def __init__(
        self,
        turn: int,
        sampling: Sampling,
        tokenizer: TextTokenizer,
        clock: Clock,
        stopwatch: Stopwatch,
        events_out: EventQueue,
        sound: ReplyAudio | None,
        reencode: CodecService | None,
    ) -> None:
        """`sound`: None for a reply in text. `reencode`: encodes the reply's sound again for the
        history; None: the history has the reply's own codes."""
        self.turn, self.stopwatch, self.sound = turn, stopwatch, sound
        self.kind: ReplyKind = "text" if sound is None else "speech"
        self._sampling, self._tokenizer, self._clock = sampling, tokenizer, clock
        self._events, self._reencode = events_out, reencode
        self._dialogue: Dialogue | None = None
        self._stream: ReplyStream | None = None
        self._prefix_rows = 0
        self._rows_read = 0
        self._text = ""
        self._in_history = False
        self._held: list[Event] = []  # until `release`
        self._released = asyncio.Event()
        self._timing_sent = False
        self._stopped = False
        self._heard_codes: int | None = None  # at `stop`

    @property
    def begun(self) -> bool:
        return self._stream is not None

    @property
    def codes(self) -> list[int]:
        """The codes so far; those of the end may not be heard yet."""
        if self._stream is None or self._dialogue is None:
            return []
        rows = self._stream.rows
        return [rows[index][1] for index in code_rows(rows, self._dialogue.ids)]

    @property
    def generated(self) -> bool:
        """Whether the model has ended the reply; its sound may still wait."""
        return self._stream is not None and self._stream.stop is not None

    def release(self) -> None:
        """The user's turn is over: sends the events held so far; further ones are sent at once."""
        self._released.set()
        if self._stream:
            self._stream.adopt()
        held, self._held = self._held, []
        for event in held:
            self._events.put(event)
        if self.sound:
            self.sound.release()

    async def run(self, dialogue: Dialogue) -> None:
        """Runs after the user's turn, until the last sample was heard."""
        prefix = dialogue.format.reply_prefix(self.kind)
        self._dialogue, self._prefix_rows = dialogue, len(prefix)
        speculative = not self._released.is_set()
        self._stream = dialogue.reply(self._sampling, prefix, speculative)
        self.stopwatch.mark("last_row_in", self._clock.now())
        self._send(ReplyStarted(self.turn, self.kind))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read())
                if self.sound:
                    tasks.create_task(self.sound.render())
                    tasks.create_task(self.sound.play())
        except BaseExceptionGroup as group:
            if self._stopped:  # tasks that were not cancelled yet have found their streams closed
                raise asyncio.CancelledError from None
            raise group.exceptions[0] from None
        finally:
            self._stream.cancel()
            if self.sound:
                self.sound.drop()
        if self._reencode and self._in_history:
            await self._write_reencoded(self._reencode, None)
        await self._released.wait()
        codes = len(code_rows(self._stream.rows, dialogue.ids))
        self._events.put(ReplyDone(self.turn, self._text, codes, str(self._stream.stop)))
        self._send_timing()
        if self.sound:
            await self.sound.played()

    def stop(self) -> None:
        """Interrupts the reply: no row is made and no sound is sent after this call. The caller
        cancels the task of `run`."""
        self._stopped, now = True, self._clock.now()
        if self._stream:
            self._stream.cancel()
        if self.sound:
            self._heard_codes = self.sound.heard_codes(now)
            heard_s = self.sound.playback.heard(now) / self.sound.playback.rate_hz
            self.sound.drop()
        else:
            self._heard_codes, heard_s = 0, 0.0
        if self._released.is_set():
            self._events.put(ReplyInterrupted(self.turn, self._heard_codes, heard_s))
            self._send_timing()

    async def fix_history(self) -> None:
        """After `stop`, or after a failure: the dialogue gets what was heard, as a whole turn.
        Without `stop`, all sound that was sent counts as heard."""
        dialogue, stream = self._dialogue, self._stream
        if dialogue is None or stream is None:
            return  # the reply had not begun
        self._remove_from_history()
        rows = stream.rows
        if self.sound is None:
            rows = rows[: self._rows_read]
            ending = close_whole(rows, dialogue.format.footer(), dialogue.ids)
        else:
            heard = self._heard_codes
            heard = self.sound.sent_codes if heard is None else heard
            whole = stream.stop not in (None, "interrupted")
            if whole and heard >= len(code_rows(rows, dialogue.ids)):
                ending = close_whole(rows, dialogue.format.footer(), dialogue.ids)
            else:
                ending = close_heard(rows, heard, dialogue.format.footer(), dialogue.ids)
            if ending.kept and self._reencode:
                # If encoding fails, the history keeps the reply's own codes.
                with suppress(Exception):
                    await self._write_reencoded(self._reencode, heard)
                    return
        self._write(ending)

    async def _read(self) -> None:
        dialogue, stream, sound = self._dialogue, self._stream, self.sound
        assert dialogue is not None, "run sets both"
        assert stream is not None, "run sets both"
        text = TextStream(self._tokenizer, dialogue.ids)
        speaking = True
        async for row in stream:
            self.stopwatch.mark("first_row", self._clock.now())
            self._rows_read += 1
            if delta := text.push(row):
                self._text += delta
                self._send(TextDelta(self.turn, delta))
            if sound and speaking and dialogue.ids.is_speech(row):
                speaking = row[1] < dialogue.ids.eosp
                if speaking:
                    sound.push(row[1])
                    await sound.keep_pace()
                else:
                    sound.end()
        self.stopwatch.mark("last_row", self._clock.now())
        self.stopwatch.set(rows=self._rows_read)
        if sound:
            sound.end()
        if stream.stop != "interrupted":  # else `fix_history` knows what was heard
            self._write(close_whole(stream.rows, dialogue.format.footer(), dialogue.ids))

    def _write(self, ending: TurnEnding) -> None:
        dialogue = self._dialogue
        assert dialogue is not None, "the reply has begun"
        if not ending.kept:
            dialogue.drop_open()
            return
        dialogue.cut(self._prefix_rows + ending.kept)
        dialogue.append(ending.rows)
        dialogue.close_turn("assistant", self.kind, self.turn)
        self._in_history = True

    async def _write_reencoded(self, codec: CodecService, codes: int | None) -> None:
        """Encodes the reply's sound, or that of its first `codes`, and writes it as the turn."""
        dialogue, sound = self._dialogue, self.sound
        assert dialogue is not None, "the reply has begun"
        assert sound is not None, "only a spoken reply is encoded again"
        assert sound.kept is not None, "sound that is encoded again is kept"
        wave = np.concatenate(sound.kept)
        wave = wave[: None if codes is None else codes * sound.samples_per_code]
        again = await codec.encode(torch.from_numpy(wave.clip(-1, 1)), sound.playback.rate_hz)
        self._remove_from_history()
        dialogue.drop_open()
        rows = dialogue.format.turn(Turn("assistant", codes=again))
        dialogue.say("assistant", "speech", rows, turn=self.turn)
        self._in_history = True

    def _remove_from_history(self) -> None:
        if self._in_history:
            assert self._dialogue is not None, "the reply has begun"
            self._dialogue.reopen()
            self._in_history = False

    def _send(self, event: Event) -> None:
        if self._released.is_set():
            self._events.put(event)
        else:
            self._held.append(event)

    def _send_timing(self) -> None:
        """Once: a reply that is interrupted while its last sound plays has its record already."""
        if self._timing_sent:
            return
        if self.sound:
            playback = self.sound.playback
            self.stopwatch.set(underruns=playback.underruns, silence_s=playback.silence_s)
        self._events.put(TimingReady(self.stopwatch.read()))
        self._timing_sent = True


class ReplyFactory:
    """Creates replies with the settings, the voice and the codec of the moment. A reply keeps what
    it was created with."""

    def __init__(
        self,
        codec: CodecService | None,
        voice: Voice | None,
        tokenizer: TextTokenizer,
        settings: TalkSettings,
        clock: Clock,
        events_out: EventQueue,
    ) -> None:
        """Without a codec or a voice, only replies in text can be created."""
        self.settings, self.voice = settings, voice
        self._codec, self._tokenizer = codec, tokenizer
        self._clock, self._events = clock, events_out

    def make(self, turn: int, stopwatch: Stopwatch, heard_from: float = -math.inf) -> LiveReply:
        """A reply to a turn, of the stopwatch's kind. `heard_from`: a speculative reply is not
        heard before this moment."""
        spoken, settings = stopwatch.reply == "speech", self.settings
        reencode = spoken and settings.history == "reencode"
        sound = self._sound(turn, stopwatch, heard_from, reencode) if spoken else None
        return LiveReply(
            turn,
            settings.sampling,
            self._tokenizer,
            self._clock,
            stopwatch,
            self._events,
            sound,
            self._codec if reencode else None,
        )

    def _sound(
        self, turn: int, stopwatch: Stopwatch, heard_from: float, keep_sound: bool
    ) -> ReplyAudio:
        assert self._codec is not None, "speech needs a codec"
        assert self.voice is not None, "speech needs a voice"
        codec, settings = self._codec, self.settings
        return ReplyAudio(
            turn,
            DecodeStream(codec, self.voice, settings.chunk, settings.voice_seed, settings.tail),
            Playback(codec.sample_rate, settings.lead_s),
            self._clock,
            stopwatch,
            self._events,
            codec.production,
            heard_from=heard_from,
            keep_sound=keep_sound,
            ahead_s=settings.ahead_s,
        )
