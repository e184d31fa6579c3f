"""One reply: rows from the engine → text and codes → sound; and how it then stands in the history.

Reading rows, rendering and handing out run side by side, so none waits for another's work. `stop`
ends all of them at once; `mend` then makes the dialogue what was heard. A reply begun on trial says
nothing until `release`. Knows nothing of the user's turns.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import torch

from mosslive.config import Sampling
from mosslive.engine.conversation import ReplyStream
from mosslive.rows import ReplyKind, TextStream, TextTokenizer, Turn
from mosslive.talk.clock import Clock
from mosslive.talk.codec_worker import CodecWorker
from mosslive.talk.dialogue import Dialogue
from mosslive.talk.events import (
    Event,
    ReplyDone,
    ReplyInterrupted,
    ReplyStarted,
    TextDelta,
    TimingReady,
)
from mosslive.talk.reply_audio import ReplyAudio
from mosslive.talk.timing import Stopwatch
from mosslive.talk.turn_ending import TurnEnding, close_heard, close_whole, code_rows


class LiveReply:
    def __init__(
        self,
        turn: int,
        sampling: Sampling,
        tokenizer: TextTokenizer,
        clock: Clock,
        stopwatch: Stopwatch,
        emit: Callable[[Event], None],
        sound: ReplyAudio | None,
        reencode: CodecWorker | None,
    ) -> None:
        """`sound`: None for a reply in writing. `reencode`: who encodes the reply's sound again to
        be its history; None: its own codes are."""
        self.turn, self.stopwatch, self.sound = turn, stopwatch, sound
        self.kind: ReplyKind = "text" if sound is None else "speech"
        self._sampling, self._tokenizer, self._clock = sampling, tokenizer, clock
        self._emit, self._reencode = emit, reencode
        self._dialogue: Dialogue | None = None
        self._stream: ReplyStream | None = None
        self._prefix_rows = 0
        self._rows_read = 0
        self._written = ""
        self._in_history = False
        self._held: list[Event] = []  # until release
        self._released = asyncio.Event()
        self._timing_told = False
        self._heard_codes: int | None = None  # at `stop`

    @property
    def begun(self) -> bool:
        return self._stream is not None

    def release(self) -> None:
        """The user's turn is over: everything said so far may be told."""
        self._released.set()
        held, self._held = self._held, []
        for event in held:
            self._emit(event)
        if self.sound:
            self.sound.release()

    async def run(self, dialogue: Dialogue) -> None:
        """After the user's turn, until the last sample was heard."""
        prefix = dialogue.format.reply_prefix(self.kind)
        self._dialogue, self._prefix_rows = dialogue, len(prefix)
        self._stream = dialogue.reply(self._sampling, prefix)
        self.stopwatch.mark("last_row_in", self._clock.now())
        self._tell(ReplyStarted(self.turn, self.kind))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read())
                if self.sound:
                    tasks.create_task(self.sound.render())
                    tasks.create_task(self.sound.play())
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._stream.cancel()
            if self.sound:
                self.sound.drop()
        if self._reencode and self._in_history:
            await self._write_sound(self._reencode, None)
        await self._released.wait()
        codes = len(code_rows(self._stream.rows, dialogue.ids))
        self._emit(ReplyDone(self.turn, self._written, codes, str(self._stream.stop)))
        self._tell_timing()
        if self.sound:
            await self.sound.played()

    def stop(self) -> None:
        """The user has cut in: no more rows, no more sound, from this call on."""
        now = self._clock.now()
        if self._stream:
            self._stream.cancel()
        if self.sound:
            self._heard_codes = self.sound.heard_codes(now)
            heard_s = self.sound.playback.heard(now) / self.sound.playback.rate_hz
            self.sound.drop()
        else:
            self._heard_codes, heard_s = 0, 0.0
        if self._released.is_set():
            self._emit(ReplyInterrupted(self.turn, self._heard_codes, heard_s))
            self._tell_timing()

    async def mend(self) -> None:
        """After `stop`, or after it failed: the dialogue holds what was heard, as a whole turn.
        Without `stop`, all that was handed out will be heard."""
        dialogue, stream = self._dialogue, self._stream
        if dialogue is None or stream is None:
            return  # it had not begun
        self._take_back()
        rows = stream.rows
        if self.sound is None:
            rows = rows[: self._rows_read]
            closing = close_whole(rows, dialogue.format.footer(), dialogue.ids)
        else:
            heard = self._heard_codes
            heard = self.sound.handed_codes if heard is None else heard
            whole = stream.stop not in (None, "interrupted")
            if whole and heard >= len(code_rows(rows, dialogue.ids)):
                closing = close_whole(rows, dialogue.format.footer(), dialogue.ids)
            else:
                closing = close_heard(rows, heard, dialogue.format.footer(), dialogue.ids)
            if closing.kept and self._reencode:
                # What cannot be encoded again stands as it was said.
                with suppress(Exception):
                    await self._write_sound(self._reencode, heard)
                    return
        self._write(closing)

    async def _read(self) -> None:
        dialogue, stream, sound = self._dialogue, self._stream, self.sound
        assert dialogue is not None, "run begins with both"
        assert stream is not None, "run begins with both"
        text = TextStream(self._tokenizer, dialogue.ids)
        speaking = True
        async for row in stream:
            self.stopwatch.mark("first_row", self._clock.now())
            self._rows_read += 1
            if written := text.push(row):
                self._written += written
                self._tell(TextDelta(self.turn, written))
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
        if stream.stop != "interrupted":  # else `mend` knows what was heard
            self._write(close_whole(stream.rows, dialogue.format.footer(), dialogue.ids))

    def _write(self, closing: TurnEnding) -> None:
        dialogue = self._dialogue
        assert dialogue is not None, "nothing is written before it began"
        if not closing.kept:
            dialogue.drop_open()
            return
        dialogue.cut(self._prefix_rows + closing.kept)
        dialogue.append(closing.rows)
        dialogue.close_turn("assistant", self.kind, self.turn)
        self._in_history = True

    async def _write_sound(self, codec: CodecWorker, codes: int | None) -> None:
        """The reply's sound, or that of its first codes, encoded again, is its history."""
        dialogue, sound = self._dialogue, self.sound
        assert dialogue is not None, "nothing is written before it began"
        assert sound is not None, "what is written has no sound"
        assert sound.kept is not None, "sound is kept where it is encoded again"
        wave = np.concatenate(sound.kept)
        wave = wave[: None if codes is None else codes * sound.samples_per_code]
        again = await codec.encode(torch.from_numpy(wave.clip(-1, 1)), sound.playback.rate_hz)
        self._take_back()
        dialogue.drop_open()
        rows = dialogue.format.turn(Turn("assistant", codes=again))
        dialogue.say("assistant", "speech", rows, turn=self.turn)
        self._in_history = True

    def _take_back(self) -> None:
        if self._in_history:
            assert self._dialogue is not None, "nothing is written before it began"
            self._dialogue.reopen()
            self._in_history = False

    def _tell(self, event: Event) -> None:
        if self._released.is_set():
            self._emit(event)
        else:
            self._held.append(event)

    def _tell_timing(self) -> None:
        """Once: a reply cut off while the last of it is played has its record already."""
        if self._timing_told:
            return
        if self.sound:
            playback = self.sound.playback
            self.stopwatch.set(underruns=playback.underruns, silence_s=playback.silence_s)
        self._emit(TimingReady(self.stopwatch.read()))
        self._timing_told = True
