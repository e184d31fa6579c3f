"""Measures live conversations end to end: questions in real time, spoken replies of fixed length.

Each conversation asks, is answered and starts again. Conversations start one after another, so that
some listen while others speak. Every reply is verified before any time is reported (`verify.py`).
Excludes turn detection: the end of a question is committed.
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
from numpy.typing import NDArray

from mosslive.bench.codec.check import LEAST_SAME
from mosslive.bench.report import BenchResult, BenchRow, conditions_of
from mosslive.bench.subject import Subject
from mosslive.bench.talk.parts import (
    PartsSettings,
    make_parts,
    needed_pool_s,
)
from mosslive.bench.talk.random_codec import CHUNK_CODES, MICROPHONE_HZ, RandomCodec, question
from mosslive.bench.talk.timing_report import talk_figures, talk_rows
from mosslive.bench.talk.verify import ALONE, LEAST_COSINE, Answered, Verifier
from mosslive.bench.timing import free_memory
from mosslive.bench.verified import NotVerified
from mosslive.codec.flow_stream import TailRule
from mosslive.config import SECONDS_PER_CODE, Sampling, refuse
from mosslive.config.codec_precision import CodecPrecision, codec_precision
from mosslive.engine.engine import Engine
from mosslive.kernels.arithmetic import arithmetic
from mosslive.talk.clock import Clock, WallClock
from mosslive.talk.codec_service import CodecService
from mosslive.talk.events import AudioChunk, TalkFault, TimingReady
from mosslive.talk.host_threads import short_thread_switches
from mosslive.talk.settings import TalkSettings
from mosslive.talk.talk import Talk
from mosslive.talk.timing import TurnTiming

PACKET_S = 0.02
NOTES = {
    "verified": f"every reply: at least {LEAST_SAME:.0%} of the codes heard are the offline "
    "encoder's (the rest near-ties); sound finite, 1920 samples a code, cosine with the same codes "
    f"rendered again >= {LEAST_COSINE:g}: {ALONE} replies alone, all of them with other companions",
    "time to first audio": "from the last packet of the question, which is committed (no turn "
    "detection), to the first sample handed to the transport; wall clock of the host",
    "real-time factor": "wall clock from the end of the question to the last sample rendered, over "
    "the duration of the reply",
    "conversations": f"questions arrive in real time in packets of {1000 * PACKET_S:.0f} ms at "
    f"{MICROPHONE_HZ} Hz; conversations start one after another and keep asking, so that some "
    "listen while others are answered; of several conversations the first questions are not "
    "measured, because not all have begun",
    "pace": "one conversation: as fast as possible; several: the default of live talk, handed out "
    f"at most {TalkSettings().lead_s:g} s and made at most about {TalkSettings().ahead_s:g} s "
    "ahead of playback; the real-time factor excludes the pauses of pacing",
    "end of a reply": "how long rendering the last codes blocks all other sound: wall clock, "
    f"device idle before, measured on {ALONE} replies while verifying",
}


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
    pool_s: float | None = None  # of the flow; None: as `needed_pool_s` computes

    def __post_init__(self) -> None:
        codec_precision(self.codec_precision, self.subject.device)  # raises for an unknown name
        if not 0 <= self.stagger_s < math.inf:
            raise refuse("stagger", self.stagger_s, "0 or more seconds")
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
            f"--tail {self.tail} --stagger {self.stagger_s:g}"
            + (f" --pool-s {self.pool_s:g}" if self.pool_s else "")
            + (f" --vocoder {self.vocoder}" if self.vocoder else "")
        )

    @property
    def parts(self) -> PartsSettings:
        """The engine and the codec, sized for all conversations at once."""
        most = max(self.conversations)
        return PartsSettings(
            self.subject,
            most,
            round(self.question_s / SECONDS_PER_CODE) + self.reply_codes + 256,
            self.pool_s or needed_pool_s(most, self.reply_codes * SECONDS_PER_CODE, self.stagger_s),
            self.precision,
            self.codec_precision,
            self.vocoder,
        )


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

    engine, codec = make_parts(settings.parts, report_progress)
    job = _Job(settings, engine, codec, clock or WallClock(), report_progress)
    # The switches apply to the whole process: the codec needs exact float32, and half precision
    # does not depend on them.
    with arithmetic("fp32"), short_thread_switches():
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
        thread = CodecService(self._codec, priority=self._engine.priority)
        measured = {}
        async with self._engine:
            most = max(settings.conversations)
            await thread.warm(self._voice, CHUNK_CODES, most, settings.tail)
            self._report_progress("the codec warmed")
            wave = question(settings.question_s, MICROPHONE_HZ, 0)
            await self._ask(thread, 0, 0, math.inf, wave)  # warms up everything, end to end
            self._report_progress("a first reply")
            for conversations in settings.conversations:
                by_caller = await self._round(thread, conversations)
                answered = [one for several in by_caller for one in several]
                ends_s = await self._verify(thread, answered)
                self._report_progress(
                    f"{conversations} conversations: {len(answered)} replies verified"
                )
                # While the first questions are asked, not all conversations have begun.
                first = 1 if conversations > 1 and settings.rounds > 1 else 0
                timings = [one.timing for several in by_caller for one in several[first:]]
                measured[conversations] = timings, ends_s
        await thread.close()
        return measured

    async def _round(self, thread: CodecService, conversations: int) -> list[list[Answered]]:
        """Returns the replies of each conversation."""
        settings, done = self._settings, [0] * self._settings.rounds
        # Made before, because that takes the event loop many milliseconds each.
        waves = {
            (number, turn): question(settings.question_s, MICROPHONE_HZ, 10 * turn + number)
            for number in range(conversations)
            for turn in range(1, settings.rounds + 1)
        }
        lead_s = math.inf if conversations == 1 else TalkSettings().lead_s

        async def one(number: int) -> list[Answered]:
            start = self._clock.now() + settings.stagger_s * number / conversations
            await self._clock.sleep_until(start)
            answered = []
            for turn in range(settings.rounds):
                wave = waves[number, 1 + turn]
                answered.append(await self._ask(thread, number, 1 + turn, lead_s, wave))
                done[turn] += 1
                if done[turn] == conversations:
                    self._report_progress(f"{conversations} conversations: round {turn + 1}")
            return answered

        return await asyncio.gather(*map(one, range(conversations)))

    async def _ask(
        self,
        thread: CodecService,
        number: int,
        turn: int,
        lead_s: float | None,
        wave: NDArray[np.float32],
    ) -> Answered:
        """Runs a conversation of one question, which arrives in real time."""
        settings = self._settings
        codes = settings.reply_codes
        sampling = Sampling.driver(
            seed=100 * turn + number, max_new=codes, min_new=codes + 1, ignored_audio="pad"
        )
        chosen = TalkSettings(turns=None, sampling=sampling, lead_s=lead_s, tail=settings.tail)
        talk = Talk(self._engine, thread, self._voice, chosen, clock=self._clock)
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
        return Answered(wave, user, reply, np.concatenate(sound), timing)

    async def _verify(self, thread: CodecService, answered: list[Answered]) -> list[float]:
        """Returns the seconds that the ends of the replies rendered alone took."""
        verifier = Verifier(self._codec, self._voice, self._engine.ids, self._settings)
        for one in answered:
            await thread.do(partial(verifier.check_heard, one))
        for group in verifier.groups(answered):
            await thread.do(partial(verifier.check_together, group))
        alone = answered[:: max(1, len(answered) // ALONE)][:ALONE]
        return [(await thread.do(partial(verifier.check_alone, one))).value for one in alone]
