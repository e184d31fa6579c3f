"""Live conversations end to end: a microphone in real time, spoken replies of fixed length.

Each conversation asks, is answered and begins anew; conversations begin one after the other, so
that some listen while others speak. Every reply is verified before any time is told: the codes
heard are the offline encoder's, and the sound is finite, of the right length, and that of its codes
rendered alone. Turn detection is not part of it: the end of a question is said.
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

from mosslive.bench.codec_warm import compiling
from mosslive.bench.lm_report import LmResult, LmRow, conditions_of
from mosslive.bench.lm_subject import Subject, checked_precisions, random_tokenizer
from mosslive.bench.lm_weights import as_precision
from mosslive.bench.talk_codec import CHUNK_CODES, RandomCodec, question, talk_forms
from mosslive.bench.talk_report import talk_figures, talk_rows
from mosslive.bench.timing import give_back_memory
from mosslive.bench.verified import NotVerified
from mosslive.cache import PagePool
from mosslive.codec.flow_stream import TailRule
from mosslive.config import Sampling, refuse
from mosslive.engine.graph_runner import GraphRunner
from mosslive.engine.graph_stepper import GraphStepper
from mosslive.engine.served import Engine
from mosslive.engine.stepper import PlainStepper
from mosslive.kernels.arithmetic import arithmetic
from mosslive.model import Decoder
from mosslive.rows import Row
from mosslive.talk.clock import Clock, WallClock
from mosslive.talk.codec_thread import CodecThread
from mosslive.talk.events import AudioChunk, TalkFault, TimingReady
from mosslive.talk.settings import TalkSettings
from mosslive.talk.talk import Talk
from mosslive.talk.timing import TurnTiming

MICROPHONE_HZ = 24_000
PACKET_S = 0.02
LEAST_COSINE = 0.99  # of a reply's sound with that of its codes alone; half precision, long phases
LEAST_SAME = 0.98  # of the codes heard: near-ties may fall otherwise in products of other shapes
_PAGE_SIZE, _CHUNK_ROWS = 16, 512
NOTES = {
    "verified": f"every reply: at least {LEAST_SAME:.0%} of the codes heard are the offline "
    "encoder's (the rest near-ties); sound finite, 1920 samples a code, cosine with the same codes "
    f"rendered alone >= {LEAST_COSINE:g}",
    "time to first audio": "from the last packet of the question, which is said to end there (turn "
    "detection excluded), to the first sample handed to the transport; wall clock of the host",
    "real-time factor": "wall clock from the end of the question to the last sample rendered, over "
    "the duration of the reply",
    "conversations": f"questions arrive in real time in packets of {1000 * PACKET_S:.0f} ms at "
    f"{MICROPHONE_HZ} Hz; conversations begin one after the other and go on asking, so that some "
    "listen while others are answered",
    "pace": "one conversation: as fast as it can be made; several: as live talk does by default, "
    f"handed out at most {TalkSettings().lead_s:g} s and made at most about "
    f"{TalkSettings().ahead_s:g} s ahead of the ear, rest no part of the real-time factor",
    "end of a reply": "how long rendering the last codes holds up all other sound: wall clock, "
    "device idle before, while verifying",
}
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class TalkBenchSettings:
    subject: Subject
    conversations: tuple[int, ...] = (1, 8)
    rounds: int = 4  # questions of each conversation
    question_s: float = 5.0
    reply_codes: int = 125  # 10 s
    precision: str = "bf16"  # of the language model
    codec_precision: str = "bf16"  # of the flow's estimator; all else of the codec is float32
    tail: TailRule = "cached"  # how the end of a reply is rendered: reference or cached
    vocoder: Path | None = None  # a BigVGAN folder; None: a random HiFT
    stagger_s: float = 2.0  # over which the conversations of a round begin

    def __post_init__(self) -> None:
        if self.codec_precision not in _DTYPES:
            raise refuse("codec-precision", self.codec_precision, ", ".join(_DTYPES))
        if self.tail not in get_args(TailRule):
            raise refuse("tail", self.tail, " or ".join(get_args(TailRule)))

    @property
    def command(self) -> str:
        return (
            f"mosslive bench talk {self.subject.options} "
            f"--conversations {','.join(map(str, self.conversations))} --rounds {self.rounds} "
            f"--question-s {self.question_s:g} --reply-codes {self.reply_codes} "
            f"--precision {self.precision} --codec-precision {self.codec_precision} "
            f"--tail {self.tail}"
        ) + (f" --vocoder {self.vocoder}" if self.vocoder else "")


@dataclass(frozen=True)
class _Answered:
    """One question and what came of it."""

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
) -> LmResult:
    """Raises `NotVerified` instead of telling a time that means nothing. `seen` is told how far it
    is: at full size it takes minutes."""
    subject, began = settings.subject, time.monotonic()

    def tell(done: str) -> None:
        seen(f"{time.monotonic() - began:.0f} s: {done}")

    most = max(settings.conversations)
    precision: Any = settings.codec_precision  # checked above
    forms = talk_forms(precision, most, with_hift=settings.vocoder is None)
    with compiling(subject.size, subject.device, forms):
        # The codec first: it sets its memory aside at the start.
        dtype, reply_s = _DTYPES[settings.codec_precision], settings.reply_codes * 0.08
        pool_s = (reply_s + 2) * most + 30
        codec = RandomCodec(subject.size, subject.device, dtype, pool_s, settings.vocoder)
        tell("the codec's weights made")
        stepper = _stepper(settings, tell)
    if subject.device == "cuda":
        tell("the codec's kernels compiled")
    engine = Engine(stepper, random_tokenizer())
    job = _Job(settings, engine, codec, clock or WallClock(), tell)
    # The switches are the process's; the codec wants float32 as such, and half precision does not
    # care.
    with arithmetic("fp32"):
        measured = asyncio.run(job.run())
    give_back_memory(subject.device)
    rows: list[LmRow] = []
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
    return LmResult("live talk", conditions, None, tuple(rows), figures=figures)


def _stepper(
    settings: TalkBenchSettings, tell: Callable[[str], None]
) -> PlainStepper | GraphStepper:
    """The language model, ready to be asked by all conversations at once."""
    subject, most = settings.subject, max(settings.conversations)
    config, weights = subject.load(float8_trunk=settings.precision == "fp8")
    (precision,) = checked_precisions(weights, (settings.precision,))
    decoder = Decoder(config, as_precision(weights, precision))
    tell("the language model's weights made")
    each = round(settings.question_s * 12.5) + settings.reply_codes + 256
    runner = GraphRunner(decoder, PagePool(most * each // _PAGE_SIZE, _PAGE_SIZE), _CHUNK_ROWS)
    if subject.device != "cuda":
        return PlainStepper(runner)
    stepper = GraphStepper(runner, most)
    stepper.record()
    tell("the language model's graphs recorded")
    return stepper


class _Job:
    def __init__(
        self,
        settings: TalkBenchSettings,
        engine: Engine,
        codec: RandomCodec,
        clock: Clock,
        tell: Callable[[str], None],
    ) -> None:
        self._settings, self._engine, self._codec = settings, engine, codec
        self._voice, self._clock, self._tell = codec.random_voice(), clock, tell

    async def run(self) -> dict[int, tuple[list[TurnTiming], list[float]]]:
        """By the number of conversations: every turn, and seconds of every end of a reply."""
        settings = self._settings
        thread = CodecThread(self._codec, courtesy=self._engine.courtesy)
        measured = {}
        async with self._engine:
            most = max(settings.conversations)
            await thread.warm(self._voice, CHUNK_CODES, most, settings.tail)
            self._tell("the codec warmed")
            await self._ask(thread, 0, 0, math.inf)  # and everything once, end to end
            self._tell("a first reply")
            for conversations in settings.conversations:
                answered = await self._round(thread, conversations)
                ends_s = [(await thread.do(partial(self._verify, one))).value for one in answered]
                self._tell(f"{conversations} conversations: {len(answered)} replies verified")
                measured[conversations] = [one.timing for one in answered], ends_s
        await thread.close()
        return measured

    async def _round(self, thread: CodecThread, conversations: int) -> list[_Answered]:
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
                    self._tell(f"{conversations} conversations: round {turn + 1}")
            return answered

        return [
            answered
            for several in await asyncio.gather(*map(one, range(conversations)))
            for answered in several
        ]

    async def _ask(
        self, thread: CodecThread, number: int, turn: int, lead_s: float | None
    ) -> _Answered:
        """One conversation of one question, in real time up to the end of it."""
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
        """On the codec's thread. → seconds that the end of the reply took, rendered alone."""
        ids, codec, sound = self._engine.ids, self._codec, answered.sound
        expected = codec.encode(torch.from_numpy(answered.asked), MICROPHONE_HZ)
        heard = [a for t, a in answered.user_rows if t == ids.modality_pad and a != ids.eosp]
        if len(heard) != len(expected):
            raise NotVerified(f"{len(heard)} codes heard; the offline encoder has {len(expected)}")
        same = float(np.mean(np.array(expected) == np.array(heard)))
        if same < LEAST_SAME:
            raise NotVerified(f"{same:.1%} of the codes heard are the offline encoder's")
        codes = [a for t, a in answered.reply_rows if t == ids.modality_pad and a != ids.eosp]
        if len(codes) != self._settings.reply_codes or len(sound) != 1920 * len(codes):
            raise NotVerified(f"{len(sound)} samples for {len(codes)} codes")
        if not np.isfinite(sound).all() or float(sound.std()) < 1e-6:
            raise NotVerified("the sound is not finite, or silence")
        stream = codec.decoder_stream(self._voice, tail=self._settings.tail)
        whole_chunks, began = stream.push(codes), time.perf_counter()
        alone = np.concatenate((whole_chunks, stream.finish()))
        end_s = time.perf_counter() - began
        cosine = float(np.dot(sound, alone) / (np.linalg.norm(sound) * np.linalg.norm(alone)))
        if cosine < LEAST_COSINE:
            raise NotVerified(f"cosine {cosine:.5f} with the codes rendered alone")
        return end_s
