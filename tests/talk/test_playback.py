"""Playback: what has been heard, how far ahead sound is sent, and what an underrun is."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import LanguageModel
from mosslive.talk.events import AudioChunk, ReplyInterrupted, TimingReady
from mosslive.talk.playback import Playback
from tests.talk.rig import CODES, RIG, run
from tests.talk.test_interruption import PUSH_TO_TALK, asked
from tests.talk.toy import SAMPLES


def test_sound_is_heard_at_the_pace_it_is_played() -> None:
    """Heard time runs from the first sample sent and never exceeds what was sent."""
    playback = Playback(1000, lead_s=0.5)
    assert (playback.heard(10), playback.room(10)) == (0, 500)
    playback.send(500, 10.0)
    assert [playback.heard(10 + s) for s in (0, 0.1, 0.25, 0.5, 9)] == [0, 100, 250, 500, 500]
    assert playback.room(10.25) == 250
    assert playback.room_at(300, 10.25) == pytest.approx(10.3)
    assert playback.ends_at == 10.5


def test_an_underrun_is_a_gap_in_what_is_heard() -> None:
    """Sound that arrives after the last was played counts as an underrun, and time continues from
    there."""
    playback = Playback(1000, lead_s=0.5)
    playback.send(100, 10.0)
    playback.send(100, 10.05)
    assert playback.underruns == 0
    playback.send(100, 10.5)
    assert playback.underruns == 1
    assert playback.silence_s == pytest.approx(0.3)
    assert [playback.heard(t) for t in (10.5, 10.55, 11)] == [200, 250, 300]


def test_reports_correct_the_clock() -> None:
    """A playback report of the client overrides the estimate."""
    playback = Playback(1000, lead_s=math.inf)
    playback.send(1000, 10.0)
    playback.report(100, 10.5)  # playback began late
    assert playback.heard(10.5) == 100
    assert playback.heard(10.6) == 200
    playback.report(10**9, 10.7)
    assert playback.heard(10.7) == 1000
    playback.report(-5, 10.8)
    assert playback.heard(10.8) == 0


def test_a_late_report_of_the_reply_before_changes_nothing() -> None:
    """A report before the first sample is sent is ignored and causes no underrun later."""
    playback = Playback(1000, lead_s=0.5)
    playback.report(700, 9.0)
    playback.send(100, 10.0)
    assert (playback.underruns, playback.silence_s) == (0, 0.0)
    assert [playback.heard(t) for t in (10.0, 10.05)] == [0, 50]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.floats(0, 2), st.integers(0, 3000), st.integers(-10, 9000)), max_size=20)
)
def test_heard_never_exceeds_sent(moves: list[tuple[float, int, int]]) -> None:
    """With any mixture of sound and reports 0 ≤ heard ≤ sent, and without reports heard never
    decreases."""
    playback, now, before = Playback(1000, lead_s=0.3), 5.0, 0
    for wait, samples, report in moves:
        now += wait
        if report < 0:
            playback.report(samples, now)
            before = 0
        else:
            playback.send(samples, now)
        heard = playback.heard(now)
        assert before <= heard <= playback.sent
        before = heard


def test_sound_goes_out_no_further_ahead_than_the_lead(nano_lm: LanguageModel) -> None:
    """A reply computed at once is sent over its length, the first sound at once."""

    async def story() -> None:
        rig = await asked(nano_lm, replace(PUSH_TO_TALK, lead_s=0.2))
        await rig.settle()
        began = rig.clock.now()
        assert len(rig.sound()) == 0.2 * 24_000
        for _ in range(30):
            await rig.wait(0.05)
            ahead_s = len(rig.sound()) / 24_000 - (rig.clock.now() - began)
            assert -0.001 <= ahead_s <= 0.2001 or len(rig.sound()) == CODES * SAMPLES
        await rig.until(lambda: not rig.talk.replying)
        assert rig.clock.now() - began == pytest.approx(CODES * 0.08, abs=0.05)
        firsts = [chunk.first_sample for chunk in rig.of(AudioChunk)]
        sizes = [len(chunk.pcm) for chunk in rig.of(AudioChunk)]
        assert firsts == [sum(sizes[:index]) for index in range(len(sizes))]
        assert min(sizes[:-1]) >= 480  # 20 ms or more
        assert rig.of(TimingReady)[0].timing.underruns == 0
        await rig.close()

    run(story())


def test_a_file_needs_no_real_time(nano_lm: LanguageModel) -> None:
    """With lead_s=None everything is sent at once and counts as heard."""

    async def story() -> None:
        rig = await asked(nano_lm, replace(PUSH_TO_TALK, lead_s=None))
        await rig.settle()
        assert not rig.talk.replying
        assert len(rig.sound()) == CODES * SAMPLES
        await rig.close()

    run(story())


def test_the_history_keeps_what_the_client_reports(nano_lm: LanguageModel) -> None:
    """For sound sent all at once over a slow connection, the client's report decides what an
    interruption keeps."""

    async def story() -> None:
        rig = await asked(nano_lm, replace(PUSH_TO_TALK, lead_s=math.inf))
        await rig.wait(1.0)
        assert len(rig.sound()) == CODES * SAMPLES
        rig.talk.played(3 * SAMPLES)
        rig.talk.cancel()
        await rig.settle()
        assert rig.of(ReplyInterrupted)[0].heard_codes == 3
        await rig.close()
        rig.assert_clean()

    run(story())


def test_a_slow_engine_is_an_underrun(nano_lm: LanguageModel) -> None:
    """Two steps a second are too slow for speech, and the gaps are counted in the record."""

    async def story() -> None:
        rig = await asked(
            nano_lm, replace(PUSH_TO_TALK, sampling=replace(RIG.sampling, max_new=14))
        )
        while rig.talk.replying:
            for _ in range(4):
                await rig.one_step()
            await rig.elapse(0.5)
        timing = rig.of(TimingReady)[0].timing
        assert timing.underruns >= 1
        assert timing.silence_s > 0.3
        assert timing.rtf is not None
        assert timing.rtf > 1
        await rig.close()

    run(story())
