"""Measures live conversations end to end: questions in real time, spoken replies of fixed length.

Each conversation asks, is answered and starts again. Conversations start one after another, so that
some listen while others speak. Every reply is verified before any time is reported: the codes heard
are the offline encoder's, and the sound is finite, has the right length, and equals its codes
rendered alone. Excludes turn detection: the end of a question is committed.
"""

import asyncio
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from mosslive.bench.codec.precompile import compiling
from mosslive.bench.lm.weights import as_precision
from mosslive.bench.report import BenchResult, BenchRow, conditions_of
from mosslive.bench.subject import Subject, checked_precisions, random_tokenizer
from mosslive.bench.talk.random_codec import CHUNK_CODES, RandomCodec, compile_jobs, question
from mosslive.bench.talk.timing_report import talk_figures, talk_rows
from mosslive.bench.timing import free_memory
from mosslive.bench.verified import NotVerified
from mosslive.cache import PagePool
from mosslive.codec.device import COMPUTE
from mosslive.codec.flow_stream import TailRule
from mosslive.config import Sampling, refuse
from mosslive.config.codec_precision import CodecPrecision, codec_precision
from mosslive.engine.engine import Engine
from mosslive.engine.graph_runner import GraphRunner
from mosslive.engine.graph_stepper import GraphStepper
from mosslive.engine.stepper import PlainStepper
from mosslive.kernels.arithmetic import Precision, arithmetic
from mosslive.model import Decoder
from mosslive.rows import Row
from mosslive.talk.clock import Clock, WallClock
from mosslive.talk.codec_worker import CodecWorker
from mosslive.talk.events import AudioChunk, TalkFault, TimingReady
from mosslive.talk.settings import TalkSettings
from mosslive.talk.talk import Talk
from mosslive.talk.timing import TurnTiming

MICROPHONE_HZ = 24_000
PACKET_S = 0.02
LEAST_COSINE = 0.99  # of a reply's sound with its codes rendered alone; half precision, long phases
LEAST_SAME = 0.98  # of the codes heard: near-ties can differ in products of other shapes
_PAGE_SIZE, _CHUNK_ROWS = 16, 512
NOTES = {
    "verified": f"every reply: at least {LEAST_SAME:.0%} of the codes heard are the offline "
    "encoder's (the rest near-ties); sound finite, 1920 samples a code, cosine with the same codes "
    f"rendered alone >= {LEAST_COSINE:g}",
    "time to first audio": "from the last packet of the question, which is committed (no turn "
    "detection), to the first sample handed to the transport; wall clock of the host",
    "real-time factor": "wall clock from the end of the question to the last sample rendered, over "
    "the duration of the reply",
    "conversations": f"questions arrive in real time in packets of {1000 * PACKET_S:.0f} ms at "
    f"{MICROPHONE_HZ} Hz; conversations start one after another and keep asking, so that some "
    "listen while others are answered",
    "pace": "one conversation: as fast as possible; several: the default of live talk, handed out "
    f"at most {TalkSettings().lead_s:g} s and made at most about {TalkSettings().ahead_s:g} s "
    "ahead of playback; the real-time factor excludes the pauses of pacing",
    "end of a reply": "how long rendering the last codes blocks all other sound: wall clock, "
    "device idle before, measured while verifying",
}
_COMPILED: dict[str, Precision] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True)
class TalkBenchSettings:
    subject: Subject
    conversations: tuple[int, ...] = (1, 8)
    rounds: int = 4  # questions of each conversation
    question_s: float = 5.0
    reply_codes: int = 125  # 10 s
    precision: str = "bf16"  # of the language model
    codec_precision: str | None = None  # see `CodecPrecision`; None: the device's default
    tail: TailRule = "cached"  # how the end of a reply is rendered: reference or cached
    vocoder: Path | None = None  # a BigVGAN folder; None: a random HiFT
    stagger_s: float = 2.0  # over which the conversations of a round start

    def __post_init__(self) -> None:
        codec_precision(self.codec_precision, self.subject.device)  # raises for an unknown name
        if self.tail not in get_args(TailRule):
            raise refuse("tail", self.tail, " or ".join(get_args(TailRule)))

    @property
    def codec(self) -> CodecPrecision:
        return codec_precision(self.codec_precision, self.subject.device)

    @property
    def command(self) -> str:
        return (
            f"mosslive bench talk {self.subject.options} "
            f"--conversations {','.join(map(str, self.conversations))} --rounds {self.rounds} "
            f"--question-s {self.question_s:g} --reply-codes {self.reply_codes} "
            f"--precision {self.precision} --codec-precision {self.codec.name} "
            f"--tail {self.tail}"
        ) + (f" --vocoder {self.vocoder}" if self.vocoder else "")


@dataclass(frozen=True)
class _Answered:
    """One question and its reply."""

    asked: NDArray[np.float32]
    user_rows: tuple[Row, ...]
    reply_rows: tuple[Row, ...]
    sound: NDArray[np.float32]
    timing: TurnTiming


def measure_talk(
    settings: TalkBenchSettings,
    clock: Clock | None = None,
    *,
    seen: Callable[[str], None] = lambda line: None,
) -> BenchResult:
    """Raises `NotVerified` for a wrong reply. Calls `seen` with progress lines, because a full-size
    run takes minutes."""
    subject, began = settings.subject, time.monotonic()

    def report_progress(done: str) -> None:
        seen(f"{time.monotonic() - began:.0f} s: {done}")

    most = max(settings.conversations)
    chosen = settings.codec
    jobs = compile_jobs(_COMPILED[chosen.flow], most, with_hift=settings.vocoder is None)
    with compiling(subject.size, subject.device, jobs):
        # The codec first: it reserves its memory at the start.
        dtype, reply_s = COMPUTE[chosen.flow], settings.reply_codes * 0.08
        pool_s = (reply_s + 2) * most + 30
        codec = RandomCodec(subject.size, subject.device, dtype, pool_s, settings.vocoder)
        report_progress("the codec's weights made")
        stepper = _stepper(settings, report_progress)
    if subject.device == "cuda":
        report_progress("the codec's kernels compiled")
    engine = Engine(stepper, random_tokenizer())
    job = _Job(settings, engine, codec, clock or WallClock(), report_progress)
    # The switches apply to the whole process: the codec needs exact float32, and half precision
    # does not depend on them.
    with arithmetic("fp32"):
        measured = asyncio.run(job.run())
    free_memory(subject.device)
    rows: list[BenchRow] = []
    figures: dict[str, Any] = {}
    for conversations, (timings, ends_s) in measured.items():
        goals = subject.has_goals and settings.precision == "bf16"
        rows += talk_rows(conversations, timings, settings.precision, goals)
        figures |= talk_figures(conversations, timings)
        ends_ms = [1000 * seconds for seconds in ends_s]
        figures[f"{conversations} conversations, end of a reply, median, ms"] = statistics.median(
            ends_ms
        )
        figures[f"{conversations} conversations, end of a reply, largest, ms"] = max(ends_ms)
    conditions = conditions_of(
        settings.command, subject.device, subject.shown_size, subject.shown_weights, NOTES
    )
    return BenchResult("live talk", conditions, None, tuple(rows), figures=figures)


def _stepper(
    settings: TalkBenchSettings, report_progress: Callable[[str], None]
) -> PlainStepper | GraphStepper:
    """Returns the language model, sized for all conversations at once."""
    subject, most = settings.subject, max(settings.conversations)
    config, weights = subject.load(float8_trunk=settings.precision == "fp8")
    (precision,) = checked_precisions(weights, (settings.precision,))
    decoder = Decoder(config, as_precision(weights, precision))
    report_progress("the language model's weights made")
    each = round(settings.question_s * 12.5) + settings.reply_codes + 256
    runner = GraphRunner(decoder, PagePool(most * each // _PAGE_SIZE, _PAGE_SIZE), _CHUNK_ROWS)
    if subject.device != "cuda":
        return PlainStepper(runner)
    stepper = GraphStepper(runner, most)
    stepper.record()
    report_progress("the language model's graphs recorded")
    return stepper


class _Job:
    def __init__(
        self,
        settings: TalkBenchSettings,
        engine: Engine,
        codec: RandomCodec,
        clock: Clock,
        report_progress: Callable[[str], None],
    ) -> None:
        self._settings, self._engine, self._codec = settings, engine, codec
        self._voice, self._clock, self._report_progress = (
            codec.random_voice(),
            clock,
            report_progress,
        )

    async def run(self) -> dict[int, tuple[list[TurnTiming], list[float]]]:
        """Returns, by number of conversations, the timing of every turn and the seconds that the
        end of every reply took."""
        settings = self._settings
        thread = CodecWorker(self._codec, priority=self._engine.priority)
        measured = {}
        async with self._engine:
            most = max(settings.conversations)
            await thread.warm(self._voice, CHUNK_CODES, most, settings.tail)
            self._report_progress("the codec warmed")
            await self._ask(thread, 0, 0, math.inf)  # warms up everything, end to end
            self._report_progress("a first reply")
            for conversations in settings.conversations:
                answered = await self._round(thread, conversations)
                ends_s = [(await thread.do(partial(self._verify, one))).value for one in answered]
                self._report_progress(
                    f"{conversations} conversations: {len(answered)} replies verified"
                )
                measured[conversations] = [one.timing for one in answered], ends_s
        await thread.close()
        return measured

    async def _round(self, thread: CodecWorker, conversations: int) -> list[_Answered]:
        settings, done = self._settings, [0] * self._settings.rounds
        lead_s = math.inf if conversations == 1 else TalkSettings().lead_s

        async def one(number: int) -> list[_Answered]:
            start = self._clock.now() + settings.stagger_s * number / conversations
            await self._clock.sleep_until(start)
            answered = []
            for turn in range(settings.rounds):
                answered.append(await self._ask(thread, number, 1 + turn, lead_s))
                done[turn] += 1
                if done[turn] == conversations:
                    self._report_progress(f"{conversations} conversations: round {turn + 1}")
            return answered

        return [
            answered
            for several in await asyncio.gather(*map(one, range(conversations)))
            for answered in several
        ]

    async def _ask(
        self, thread: CodecWorker, number: int, turn: int, lead_s: float | None
    ) -> _Answered:
        """Runs a conversation of one question, which arrives in real time."""
        settings = self._settings
        codes = settings.reply_codes
        sampling = Sampling.driver(
            seed=100 * turn + number, max_new=codes, min_new=codes + 1, ignored_audio="pad"
        )
        chosen = TalkSettings(turns=None, sampling=sampling, lead_s=lead_s, tail=settings.tail)
        talk = Talk(self._engine, thread, self._voice, chosen, clock=self._clock)
        wave = question(settings.question_s, MICROPHONE_HZ, 10 * turn + number)
        packet = round(PACKET_S * MICROPHONE_HZ)
        began = self._clock.now()
        for first in range(0, len(wave), packet):
            await self._clock.sleep_until(began + (first + packet) / MICROPHONE_HZ)
            talk.push_audio(wave[first : first + packet], MICROPHONE_HZ)
        talk.commit()
        sound: list[NDArray[np.float32]] = []
        timing: TurnTiming | None = None
        async for event in talk.events():
            if isinstance(event, AudioChunk):
                sound.append(event.pcm)
            elif isinstance(event, TalkFault):
                raise NotVerified(f"a reply failed: {event.message}")
            elif isinstance(event, TimingReady):
                timing = event.timing
                break
        assert timing is not None, "the events ended before the reply did"
        user, reply = (said.rows for said in talk.turns[1:])
        await talk.close()
        return _Answered(wave, user, reply, np.concatenate(sound), timing)

    def _verify(self, answered: _Answered) -> float:
        """Runs on the codec's thread. Returns the seconds that the end of the reply took alone."""
        ids, codec, sound = self._engine.ids, self._codec, answered.sound
        expected = codec.encode(torch.from_numpy(answered.asked), MICROPHONE_HZ)
        heard = [a for t, a in answered.user_rows if t == ids.modality_pad and a != ids.eosp]
        if len(heard) != len(expected):
            raise NotVerified(f"{len(heard)} codes heard; the offline encoder has {len(expected)}")
        same = float(np.mean(np.array(expected) == np.array(heard)))
        if same < LEAST_SAME:
            raise NotVerified(
                f"{same:.1%} of the codes heard equal the offline encoder's; {LEAST_SAME:.0%} must"
            )
        codes = [a for t, a in answered.reply_rows if t == ids.modality_pad and a != ids.eosp]
        if len(codes) != self._settings.reply_codes or len(sound) != 1920 * len(codes):
            raise NotVerified(f"{len(sound)} samples for {len(codes)} codes")
        if not np.isfinite(sound).all() or float(sound.std()) < 1e-6:
            raise NotVerified("the sound is silent or not finite")
        stream = codec.decoder_stream(self._voice, tail=self._settings.tail)
        whole_chunks, began = stream.push(codes), time.perf_counter()
        alone = np.concatenate((whole_chunks, stream.finish()))
        end_s = time.perf_counter() - began
        cosine = float(np.dot(sound, alone) / (np.linalg.norm(sound) * np.linalg.norm(alone)))
        if cosine < LEAST_COSINE:
            raise NotVerified(
                f"cosine {cosine:.5f} with the codes alone; the least is {LEAST_COSINE}"
            )
        return end_s
