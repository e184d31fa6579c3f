"""`mosslive bench talk` at nano size: what it verifies, and what it says."""

import time

import numpy as np
import pytest

from mosslive.bench.lm_report import text_report
from mosslive.bench.lm_subject import Subject
from mosslive.bench.talk import TalkBenchSettings, measure_talk
from mosslive.bench.talk_report import quantile
from mosslive.bench.verified import NotVerified
from mosslive.codec.decoder_batch import DecoderBatch

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
    """Real time, but for sleeping, which is jumped over."""

    def __init__(self) -> None:
        self._jumped = 0.0

    def now(self) -> float:
        return time.monotonic() + self._jumped

    async def sleep_until(self, moment: float) -> None:
        self._jumped += max(0.0, moment - self.now())


def test_a_verified_table() -> None:
    """One and two conversations: every stage has a time, they add up, and nothing is left out."""
    result = measure_talk(NANO, JumpClock())
    rows = {(row.streams, row.what): row.times for row in result.rows}
    stages = [what for streams, what in rows if streams == 1 and what.startswith("of it")]
    assert len(stages) == 6
    assert all(rows[1, stage].median_ms >= 0 for stage in stages)
    total = sum(rows[1, stage].median_ms for stage in stages)
    assert rows[1, "time to first audio"].median_ms == pytest.approx(total)
    assert rows[2, "time to first audio"].count == 2
    figures = result.figures or {}
    assert figures["2 conversations, replies"] == 2
    shares = [v for name, v in figures.items() if name.startswith("1 conversations, share")]
    assert sum(shares) == pytest.approx(1)
    assert "mosslive bench talk --size nano" in text_report(result)


def test_wrong_sound_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 1: sound that is not that of its codes raises instead of giving a time."""
    finish = DecoderBatch.finish
    calls = iter(range(100))

    def noisy(self: DecoderBatch, reply: object) -> object:
        rest = finish(self, reply)  # type: ignore[arg-type]
        return rest if next(calls) % 2 else np.full_like(rest, 0.5)

    monkeypatch.setattr(DecoderBatch, "finish", noisy)
    with pytest.raises(NotVerified, match="cosine"):
        measure_talk(NANO, JumpClock())


def test_quantiles() -> None:
    """p95 is a value that was measured, not one between two."""
    assert quantile([1.0], 0.95) == 1
    assert quantile(list(map(float, range(1, 101))), 0.95) == 95
    assert quantile([1.0, 2.0, 3.0], 0.95) == 3
