"""Runs `mosslive chat`: loads the parts, runs the conversation, writes the results."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mosslive.cli import sound_card
from mosslive.cli.chat_words import TurnResult, Words
from mosslive.cli.console import advance, err, print_json, step_progress
from mosslive.codec import Sound, load_codec, read_sound, sound_format, write_sound
from mosslive.config import SECONDS_PER_CODE
from mosslive.config.codec_precision import CodecPrecision, codec_precision
from mosslive.config.folders import Parts
from mosslive.engine import Engine
from mosslive.engine.device_priority import DevicePriority
from mosslive.errors import MossliveError
from mosslive.talk import CodecService, Talk, TalkSettings, load_turns, save_turns
from mosslive.talk.conversation_file import read_saved
from mosslive.talk.events import (
    AudioChunk,
    ContextTrimmed,
    Event,
    ReplyDone,
    ReplyInterrupted,
    ReplyStarted,
    SpeechStarted,
    TalkFault,
    TextDelta,
    TimingReady,
    TurnDetected,
)
from mosslive.talk.timing import TurnTiming, timeline_html
from mosslive.talk.vad import SileroVad

if TYPE_CHECKING:
    from mosslive.cli.microphone import Duplex

_PIECE_S = 0.2  # seconds of a file per push
_MICROPHONE = "microphone"  # the `question` of a live turn


class Chat:
    def __init__(
        self,
        parts: Parts,
        settings: TalkSettings,
        words: Words,
        output: Path | None = None,
        as_json: bool = False,
        device: str = "cpu",
        dtype: str | None = None,
        vocoder: Path | None = None,
        precision: CodecPrecision | None = None,
        play: bool = False,
    ) -> None:
        """`precision`: of the codec; default: the device's. `play`: replies, if there is a sound
        card."""
        self._parts, self._settings, self._words = parts, settings, words
        self._output, self._as_json = output, as_json
        self._device, self._dtype, self._vocoder = device, dtype, vocoder
        self._precision = precision or codec_precision(None, device)
        self._play = play
        self._replies: list[TurnResult] = []
        self._rate_hz = 0  # of the written files
        self._timings: list[TurnTiming] = []

    async def run(
        self,
        files: list[Path],
        texts: list[str],
        mic: bool,
        resume: Path | None,
        save: Path | None,
        timeline: Path | None,
    ) -> None:
        # Bad paths and files raise before the slow part.
        for path in filter(None, (self._output, save, timeline)):
            if not path.absolute().parent.is_dir():
                raise MossliveError(f"{path}: cannot be written: its folder does not exist")
            if path.is_dir():
                raise MossliveError(f"{path}: cannot be written: it is a folder")
        if self._output:
            sound_format(self._output)  # raises for an unknown suffix
        if resume:
            read_saved(resume)
        sounds = [(path, read_sound(path)) for path in files]
        vad = SileroVad() if mic else None
        parts = self._parts
        # The codec first: on a GPU an engine uses all remaining memory for its pages.
        codec = None
        if parts.codec:
            options = self._precision.load_options()
            codec = load_codec(parts.codec, self._device, vocoder=self._vocoder, **options)
        voice = codec.voice(parts.voice) if codec and parts.voice else None
        priority = DevicePriority()  # of the two on one device
        thread = CodecService(codec, priority=priority) if codec else None
        self._rate_hz = thread.sample_rate if thread else 0
        async with AsyncExitStack() as open_parts:
            if thread:
                open_parts.push_async_callback(thread.close)
            if thread and voice:
                await thread.warm(voice, self._settings.chunk, tail=self._settings.tail)
            loaded = Engine.load(parts.model, self._device, self._dtype, priority=priority)
            engine = await open_parts.enter_async_context(loaded)
            turns = load_turns(resume, engine.ids) if resume else []
            talk = Talk(engine, thread, voice, self._settings, turns=turns, vad=vad)
            try:
                if mic:
                    await self._run_live(talk, engine)
                elif sounds or texts:
                    await self._run_files(talk, engine, sounds, texts)
                else:
                    await self._run_typed(talk, engine)
            finally:
                try:
                    talk.cancel()  # keeps the part of an interrupted reply that was heard
                    if save:
                        save_turns(save, await talk.settled(), engine.ids)
                    if timeline:
                        _write(timeline, timeline_html(self._timings))
                finally:
                    await talk.close()
        if self._as_json:
            print_json(self._document())

    async def _run_files(
        self, talk: Talk, engine: Engine, sounds: list[tuple[Path, Sound]], texts: list[str]
    ) -> None:
        events = talk.events()
        several = len(sounds) + len(texts) > 1
        for path, sound in sounds:
            piece = round(_PIECE_S * sound.rate_hz)
            firsts = range(0, len(sound.wave), piece)
            with step_progress("listening", len(firsts)) as progress:
                for first in firsts:
                    talk.push_audio(sound.wave[first : first + piece], sound.rate_hz)
                    advance(progress, 1)
                    await asyncio.sleep(0)
            talk.commit()
            replied = await self._reply(events, TurnResult(str(path)))
            await self._finish(talk, engine, replied, several)
        for text in texts:
            self._words.begin(text, self._writes)
            talk.push_text(text)
            replied = await self._reply(events, TurnResult(text, question_text=text))
            await self._finish(talk, engine, replied, several)

    async def _run_typed(self, talk: Talk, engine: Engine) -> None:
        events = talk.events()
        at_terminal = sys.stdin.isatty()
        if at_terminal:
            err.print("Type your message; an empty line ends the conversation.")
        while text := (await _typed_line()).strip():
            self._words.begin(text, self._writes, shown=at_terminal)
            talk.push_text(text)
            replied = await self._reply(events, TurnResult(text, question_text=text))
            await self._finish(talk, engine, replied, several=True)

    async def _run_live(self, talk: Talk, engine: Engine) -> None:
        from mosslive.cli.microphone import Duplex

        assert talk.codec is not None, "checked before loading"
        with Duplex(talk, talk.codec.sample_rate, asyncio.get_running_loop()) as duplex:
            err.print("Listening. Press Ctrl-C to end the conversation.")
            # Words come when they are ready: the conversation does not wait for them.
            words: set[asyncio.Task[None]] = set()
            try:
                await self._play_events(talk, engine, duplex, words)
            except asyncio.CancelledError:  # Ctrl-C; files and JSON are still written
                if task := asyncio.current_task():
                    task.uncancel()
            finally:
                for task in words:
                    task.cancel()
                await asyncio.gather(*words, return_exceptions=True)

    async def _play_events(
        self, talk: Talk, engine: Engine, duplex: "Duplex", words: set[asyncio.Task[None]]
    ) -> None:
        async for event in talk.events():
            match event:
                case AudioChunk(pcm=pcm):
                    duplex.play(pcm)
                case ReplyStarted() | ReplyInterrupted():
                    duplex.new_reply()
                case ReplyDone(turn, text, codes, stop):
                    replied = TurnResult(_MICROPHONE, text, codes, stop)
                    self._replies.append(replied)
                    said = [one for one in talk.turns if one.turn == turn]
                    words.add(asyncio.create_task(self._words.end(engine, replied, said)))
                case SpeechStarted():
                    err.print("[dim]listening[/dim]")
                case TurnDetected():
                    err.print("[dim]thinking[/dim]")
                case TimingReady(timing):
                    self._timings.append(timing)
                    _print_timing(timing)
                case _:
                    self._show(event)

    async def _reply(self, events: AsyncIterator[Event], replied: TurnResult) -> TurnResult:
        """Collects the events of one reply."""
        with step_progress("speaking", self._settings.sampling.max_new) as progress:
            async for event in events:
                match event:
                    case AudioChunk(pcm=pcm):
                        replied.sound.append(pcm)
                        advance(progress, round(len(pcm) / (SECONDS_PER_CODE * self._rate_hz)))
                    case ReplyDone(_, text, codes, stop):
                        replied.text, replied.codes, replied.stop = text, codes, stop
                    case TimingReady(timing):
                        self._timings.append(timing)
                        break
                    case TalkFault(message=message):
                        raise MossliveError(message)
                    case _:
                        self._show(event)
        self._replies.append(replied)
        return replied

    async def _finish(self, talk: Talk, engine: Engine, replied: TurnResult, several: bool) -> None:
        """Prints the words of a turn, and writes or plays its sound."""
        turn = self._timings[-1].turn
        said = [one for one in await talk.settled() if one.turn == turn]
        await self._words.end(engine, replied, said)
        sound = np.concatenate(replied.sound) if replied.sound else None
        if self._output and sound is not None:
            count, path = len(self._replies), self._output
            replied.output = path.with_stem(f"{path.stem}-{count}") if several else path
            write_sound(replied.output, sound, self._rate_hz)
        if self._output and sound is None:
            unwritten = f"the reply has no audio; {self._output} was not written"
            err.print(unwritten, soft_wrap=True, markup=False)
        if not self._as_json:
            wrote = f"wrote {replied.output}; " if replied.output else ""
            err.print(f"{wrote}{_summary(self._timings[-1])}", soft_wrap=True, markup=False)
        if self._play and sound is not None:
            self._play = await sound_card.play(sound, self._rate_hz)
            if not self._play and not self._output:
                err.print("no sound card: the answer is not played; -o answer.wav writes it")

    def _show(self, event: Event) -> None:
        match event:
            case TextDelta(_, text):
                self._words.write(text)
            case ContextTrimmed(turns=turns):
                err.print(f"the context is full: the oldest {turns} turns were dropped")
            case TalkFault(message=message):
                err.print(f"error: {message}", soft_wrap=True, markup=False)

    def _document(self) -> dict[str, Any]:
        turns = [replied.document() for replied in self._replies]
        return {"turns": turns, "timings": [timing.document() for timing in self._timings]}

    @property
    def _writes(self) -> bool:
        return self._settings.reply == "text"


async def _typed_line() -> str:
    """Reads one line; empty at the end of the input."""
    if sys.stdin.isatty():
        # Wait in the event loop: a thread in `readline` cannot be cancelled, and Ctrl-C would hang
        # until the next line.
        err.print("> ", end="")
        loop, typed = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(sys.stdin, typed.set)
        try:
            await typed.wait()
        finally:
            loop.remove_reader(sys.stdin)
    return await asyncio.to_thread(sys.stdin.readline)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MossliveError(f"{path}: cannot be written: {error}") from None


def _print_timing(timing: TurnTiming) -> None:
    err.print(f"[dim]{_summary(timing)}[/dim]")


def _summary(timing: TurnTiming) -> str:
    if timing.ttfa_s is None:
        return f"{timing.rows} rows"
    return (
        f"{timing.audio_s:.2f} s of speech, first audio after {1000 * timing.ttfa_s:.0f} ms, "
        f"real-time factor {timing.rtf or 0:.2f}"
    )
