"""Runs the bundled model through the live pipeline: time to first audio and speed.

One conversation at a time, each of one question that arrives at the pace of speech. The end of the
question is committed, without turn detection. Replies are judged like all others.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from mosslive.bench.talk.timing_report import quantile
from mosslive.bench.verified import NotVerified
from mosslive.codec import load_codec
from mosslive.config import Sampling
from mosslive.engine import Engine
from mosslive.talk import CodecService, Talk, TalkSettings
from mosslive.talk.clock import WallClock
from mosslive.talk.cpu_threads import shared_cpu_threads
from mosslive.talk.events import AudioChunk, ReplyDone, TalkFault, TimingReady
from mosslive.talk.timing import TurnTiming
from recipes.bundled.exam.asker import MOST_ROWS
from recipes.bundled.exam.compare import build_fp8
from recipes.bundled.exam.examiner import Examiner
from recipes.bundled.exam.figure import Figure, median, share
from recipes.bundled.exam.folder import RATE_HZ, Dialogue, Speaker
from recipes.bundled.exam.judges import Wave
from recipes.bundled.exam.words import same_words

_PACKET_S = 0.02
_MOST = 200
_SPEAKER: Speaker = "known"


@dataclass(frozen=True)
class _Answered:
    dialogue: Dialogue
    wave: Wave
    stop: str
    timing: TurnTiming


def measure_live(examiner: Examiner, most: int | None) -> Iterator[Figure]:
    model = examiner.parts.model
    yield from _measured(examiner, model, "live", most, "<= 0.3")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "fp8"
        layers = build_fp8(examiner, folder)
        yield from _measured(examiner, folder, f"live, {layers}", most, "")


def _measured(
    examiner: Examiner, folder: Path, name: str, most: int | None, goal: str
) -> Iterator[Figure]:
    dialogues = [d for d in examiner.exam.select("wording", _SPEAKER) if len(d.turn_pairs) == 1]
    chosen = dialogues[: most or _MOST]
    sampling = replace(examiner.asker.sampling, max_new=MOST_ROWS, ignored_audio="pad")
    with shared_cpu_threads("cpu"):  # like chat and serve
        answered = asyncio.run(_converse(examiner, folder, chosen, sampling))
        threads = f"{torch.get_num_threads()} of PyTorch's threads for each part"
    timings = [one.timing for one in answered if one.timing.ttfa_s is not None]
    firsts = [timing.ttfa_s or 0.0 for timing in timings]
    yield median(f"{name}: time to first audio, median", firsts, "s", goal, threads)
    if firsts:
        last = quantile(sorted(firsts), 0.95)
        yield Figure(f"{name}: time to first audio, p95", last, "s", len(firsts), note=threads)
    factors = [timing.rtf or 0.0 for timing in timings]
    yield median(f"{name}: real-time factor, median", factors, "", goal, threads)
    heard = [examiner.judges.transcribe(one.wave, examiner.renderer.rate_hz) for one in answered]
    marks = [
        same_words(text, one.dialogue.answer) for text, one in zip(heard, answered, strict=True)
    ]
    yield share(f"{name}: unseen wording, exact words heard", marks)
    yield share(f"{name}: replies that do not end", [one.stop != "stop" for one in answered])


async def _converse(
    examiner: Examiner, folder: Path, dialogues: list[Dialogue], sampling: Sampling
) -> list[_Answered]:
    parts, clock = examiner.parts, WallClock()
    assert parts.codec is not None
    assert parts.voice is not None
    codec = load_codec(parts.codec)
    voice = codec.voice(parts.voice)
    thread = CodecService(codec)
    settings = TalkSettings(turns=None, sampling=sampling, lead_s=float("inf"))
    found: list[_Answered] = []
    async with Engine.load(folder) as engine:
        await thread.warm(voice, settings.chunk)
        with examiner.stage("live conversations", len(dialogues)) as done:
            # The first is asked twice: its first run warms up everything.
            for dialogue in [*dialogues[:1], *dialogues]:
                talk = Talk(engine, thread, voice, settings, clock=clock)
                pcm = examiner.exam.pcm(dialogue.turn_pairs[0].utterances[_SPEAKER])
                found.append(await _answer(talk, clock, dialogue, pcm))
                await talk.close()
                done(1)
    await thread.close()
    return found[1:]


async def _answer(talk: Talk, clock: WallClock, dialogue: Dialogue, pcm: Wave) -> _Answered:
    packet, began = round(_PACKET_S * RATE_HZ), clock.now()
    for first in range(0, len(pcm), packet):
        await clock.sleep_until(began + (first + packet) / RATE_HZ)
        talk.push_audio(pcm[first : first + packet], RATE_HZ)
    talk.commit()
    sound: list[Wave] = [np.zeros(0, np.float32)]
    stop = ""
    async for event in talk.events():
        if isinstance(event, AudioChunk):
            sound.append(event.pcm)
        elif isinstance(event, ReplyDone):
            stop = event.stop
        elif isinstance(event, TalkFault):
            raise NotVerified(f"a reply failed: {event.message}")
        elif isinstance(event, TimingReady):
            return _Answered(dialogue, np.concatenate(sound), stop, event.timing)
    raise NotVerified("the event stream ended before the reply")
