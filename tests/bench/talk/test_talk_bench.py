"""`mosslive bench talk` at nano size: what it verifies and reports."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mosslive.bench.codec.networks import random_hift
from mosslive.bench.report import text_report
from mosslive.bench.subject import Subject
from mosslive.bench.talk.measure import TalkBenchSettings, measure_talk
from mosslive.bench.talk.random_codec import CHUNK_CODES, PROMPT_CODES, compile_jobs
from mosslive.bench.talk.timing_report import quantile
from mosslive.bench.verified import NotVerified
from mosslive.codec.decoder_batch import DecoderBatch
from mosslive.codec.hift import HiftResult
from mosslive.codec.hift.stream import HiftStream

NANO = TalkBenchSettings(
    subject=Subject("nano", "cpu"),
    conversations=(1, 2),
    rounds=1,
    question_s=0.3,
    reply_codes=13,
    precision="fp32",
    codec_precision="fp32",
)


class JumpClock:
    """Real time, except that sleeping returns at once and advances the clock."""

    def __init__(self) -> None:
        self._jumped = 0.0

    def now(self) -> float:
        return time.monotonic() + self._jumped

    async def sleep_until(self, moment: float) -> None:
        self._jumped += max(0.0, moment - self.now())


def test_a_verified_table() -> None:
    """With one and two conversations every stage has a time, the stages add up to the time to first
    audio, and progress is reported."""
    lines: list[str] = []
    result = measure_talk(NANO, JumpClock(), seen=lines.append)
    assert [line.split(": ", 1)[1] for line in lines[-4:]] == [
        "1 conversations: round 1",
        "1 conversations: 1 replies verified",
        "2 conversations: round 1",
        "2 conversations: 2 replies verified",
    ]
    rows = {(row.streams, row.what): row.times for row in result.rows}
    stages = [what for streams, what in rows if streams == 1 and what.startswith("of it")]
    assert len(stages) == 6
    assert all(rows[1, stage].median_ms >= 0 for stage in stages)
    total = sum(rows[1, stage].median_ms for stage in stages)
    assert rows[1, "time to first audio"].median_ms == pytest.approx(total)
    assert rows[2, "time to first audio"].count == 2
    figures = result.figures or {}
    assert figures["2 conversations, replies"] == 2
    assert figures["2 conversations, end of a reply, largest, ms"] > 0
    shares = [v for name, v in figures.items() if name.startswith("1 conversations, share")]
    assert sum(shares) == pytest.approx(1)
    assert "mosslive bench talk --size nano" in text_report(result)


@pytest.mark.usefixtures("untraced")
def test_wrong_sound_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sound that differs from its codes rendered alone raises `NotVerified`."""
    finish = DecoderBatch.finish
    calls = iter(range(100))

    def noisy(self: DecoderBatch, reply: object) -> object:
        rest = finish(self, reply)  # type: ignore[arg-type]
        return rest if next(calls) % 2 else np.full_like(rest, 0.5)

    monkeypatch.setattr(DecoderBatch, "finish", noisy)
    with pytest.raises(NotVerified, match="cosine"):
        measure_talk(NANO, JumpClock())


@pytest.mark.usefixtures("untraced")
def test_a_vocoder_folder_is_measured(flow_bigvgan: Path) -> None:
    """Conversations speak through the vocoder that was asked for, and are verified as ever."""
    settings = replace(NANO, conversations=(2,), reply_codes=33, vocoder=flow_bigvgan)
    result = measure_talk(settings, JumpClock())
    assert (result.figures or {})["2 conversations, replies"] == 2
    assert f"--vocoder {flow_bigvgan}" in text_report(result)


class SilentMel:
    """Returns frames of zeros, as many as the codes need."""

    leads_in = True

    def check(self, codes: Sequence[int], tokens: int) -> None: ...
    def close(self) -> None: ...

    def step(self, codes: list[int]) -> Tensor:
        return self.finish(codes[:-3])

    def finish(self, codes: list[int]) -> Tensor:
        return torch.zeros(80, 4 * len(codes))


def test_no_window_of_a_reply_is_left_to_be_compiled() -> None:
    """The first, steady and last windows of replies of any length are compiled beforehand, alone
    and for two replies that begin together."""
    met: set[tuple[int, int]] = set()  # streams and frames of a window

    class Noting(HiftStream):
        def _window(self, mel: Tensor, *_: Tensor) -> HiftResult:
            met.add((mel.shape[0], mel.shape[2]))
            silence = mel.new_zeros(mel.shape[0], 480 * mel.shape[2])
            return HiftResult(silence, silence)

    vocoder = Noting(random_hift("nano"))
    for length in range(1, 30):
        batch = DecoderBatch(vocoder, CHUNK_CODES)
        replies = [batch.join(SilentMel(), PROMPT_CODES, None) for _ in range(2)]
        for reply in replies:
            batch.push(reply, [1] * length)
        while batch.ready:
            batch.step()
        for reply in replies:
            batch.finish(reply)
    hift = [job for job in compile_jobs("fp32", 2) if job.network == "hift"]
    assert met <= {(n, frames) for job in hift for n in job.streams for frames in job.frames}
    assert {frames for streams, frames in met if streams == 1} == set(hift[0].frames)


def test_quantiles() -> None:
    """A quantile is a measured value, not an interpolated one."""
    assert quantile([1.0], 0.95) == 1
    assert quantile(list(map(float, range(1, 101))), 0.95) == 95
    assert quantile([1.0, 2.0, 3.0], 0.95) == 3
