"""Turn detection: the state machine, and the audio buffer around it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import MossliveError
from mosslive.talk import AdaptiveSilence, FixedSilence, TurnSettings
from mosslive.talk.segmenter import PushToTalkSegmenter, Sound, VadSegmenter
from mosslive.talk.turn_detection import (
    Ended,
    Paused,
    Resumed,
    Signal,
    Started,
    TurnState,
    end_s,
    step,
)
from mosslive.talk.vad import FRAME_SAMPLES as FRAME
from mosslive.talk.vad import VAD_HZ
from tests.talk.rig import LoudVad, frames

LOUD, SOFT, BETWEEN = 0.9, 0.1, 0.4
# In frames of 32 ms: 4 confirm, 7 confirm while the assistant speaks, 7 a pause, 16 an end.
PLAIN = TurnSettings(end=FixedSilence())


def machine(
    probabilities: list[float],
    settings: TurnSettings = PLAIN,
    interrupting: bool = False,
    state: TurnState | None = None,
) -> tuple[TurnState, list[tuple[int, Signal]]]:
    """The state at the end, and every signal with the number of its frame."""
    state, found = state or TurnState(), []
    for frame, probability in enumerate(probabilities):
        state, signals = step(state, probability, settings, interrupting)
        found += [(frame, signal) for signal in signals]
    return state, found


def test_a_turn_from_its_first_loud_frame_to_the_silence_after_it() -> None:
    """The whole table once: rising, speaking, a pause, speaking, the end."""
    quiet, turn = [SOFT] * 20, [LOUD] * 10 + [SOFT] * 8 + [LOUD] * 5 + [SOFT] * 16
    _, signals = machine(quiet + turn + [SOFT] * 30)
    assert signals == [
        (23, Started(20 * FRAME - 4800)),  # the fourth loud frame confirms; 0.3 s of pre-roll
        (36, Paused(30 * FRAME, 8000 - 7 * FRAME)),
        (38, Resumed()),
        (49, Paused(43 * FRAME, 8000 - 7 * FRAME)),
        (58, Ended(43 * FRAME)),
    ]


@pytest.mark.parametrize(
    ("heard", "interrupting", "signals"),
    [
        ([LOUD] * 3 + [SOFT] * 20, False, 0),  # a click
        ([LOUD, SOFT] * 20, False, 0),  # clicks
        ([LOUD] * 4, False, 1),
        ([LOUD] * 6 + [SOFT], True, 0),  # a cough while the assistant speaks
        ([LOUD] * 7, True, 1),
        ([LOUD] + [BETWEEN] * 3, False, 1),  # between the thresholds: continues
        ([BETWEEN] * 40, False, 0),  # and starts no turn
        ([SOFT] * 2000, False, 0),
    ],
)
def test_what_begins_a_turn(heard: list[float], interrupting: bool, signals: int) -> None:
    """Clicks and murmurs do not begin a turn; lasting speech does, later while the assistant
    speaks."""
    assert len(machine(heard, interrupting=interrupting)[1]) == signals


def test_a_turn_ends_once_and_sound_belongs_to_one_turn() -> None:
    """A turn right after another begins where that one ended, not within its silence."""
    _, signals = machine([LOUD] * 10 + [SOFT] * 16 + [LOUD] * 10 + [SOFT] * 16)
    ends = [frame for frame, signal in signals if isinstance(signal, Ended)]
    starts = [signal.first for _, signal in signals if isinstance(signal, Started)]
    assert ends == [25, 51]
    assert starts == [0, 26 * FRAME]


def test_an_endless_turn_is_cut_and_nothing_is_lost() -> None:
    """At the longest turn the next one starts with the next sample."""
    settings = TurnSettings(longest_s=1.0)
    _, signals = machine([LOUD] * 80, settings)
    kinds = [type(signal) for _, signal in signals]
    assert kinds == [Started, Ended, Started, Ended, Started]
    ends = [frame for frame, signal in signals if isinstance(signal, Ended)]
    starts = [signal.first for _, signal in signals if isinstance(signal, Started)]
    assert starts[1:] == [(frame + 1) * FRAME for frame in ends]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([LOUD, SOFT, BETWEEN]), max_size=200), st.booleans())
def test_the_grammar_of_signals(heard: list[float], adaptive: bool) -> None:
    """For any sound, turns begin, pause, resume and end in a possible order, and a turn's
    sound begins after the turn before it and not in the future."""
    rule = AdaptiveSilence() if adaptive else FixedSilence()
    _, signals = machine(heard, TurnSettings(end=rule))
    follows: dict[type[Signal] | None, set[type[Signal]]] = {
        None: {Started},
        Started: {Paused, Ended},
        Paused: {Resumed, Ended},
        Resumed: {Paused, Ended},
        Ended: {Started},
    }
    before: type[Signal] | None = None
    free = 0
    for frame, signal in signals:
        assert type(signal) in follows[before]
        before = type(signal)
        now = (frame + 1) * FRAME
        if isinstance(signal, Started):
            assert free <= signal.first < now
        if isinstance(signal, Ended):
            assert free < signal.speech_end <= now
            free = now


FULL = (0.0,) * 8  # a fluent speaker: eight turns without a pause
LONG, BRIEF = 1.0, 0.3  # seconds spoken so far


@pytest.mark.parametrize(
    ("pauses", "spoken_s", "wait_s"),
    [
        ((), LONG, 0.6),  # a new speaker
        ((), BRIEF, 0.9),  # may only have begun: half as long again
        (FULL, LONG, 0.35),  # fluent
        (FULL[1:], LONG, 0.6),  # not known long enough
        (FULL, BRIEF, 0.9),  # fluent, and may only have begun
        (FULL, 0.5, 0.35),  # from `brief_s` on it is an utterance
        ((0.3,), LONG, 0.6),  # short pauses change nothing yet
        ((0.48,), LONG, 1.25 * 0.48 + 0.1),  # a quarter more than the longest pause
        ((*FULL[1:], 0.48), LONG, 1.25 * 0.48 + 0.1),  # at once, fluent or not
        ((0.8,), BRIEF, 1.25 * 0.8 + 0.1),
        ((5.0,), LONG, 1.5),  # never longer
    ],
)
def test_how_long_the_adaptive_rule_waits(
    pauses: tuple[float, ...], spoken_s: float, wait_s: float
) -> None:
    """The adaptive wait as a table of the learned pauses and the length of the turn."""
    state = TurnState(began=1000, speech_end=1000 + round(spoken_s * VAD_HZ), pauses=pauses)
    assert end_s(state, TurnSettings(end=AdaptiveSilence())) == pytest.approx(wait_s)
    assert end_s(state, TurnSettings(end=FixedSilence(0.5))) == 0.5


def test_a_new_speaker_who_hesitates_is_not_interrupted_by_default() -> None:
    """ "Well, ... what I wanted ... to ask": pauses of 0.7 and 0.65 s. Half a second of silence
    makes three turns of it, the default one."""
    said = [LOUD] * 10 + [SOFT] * 22 + [LOUD] * 25 + [SOFT] * 18 + [LOUD] * 20 + [SOFT] * 40
    turns = {}
    for rule in (FixedSilence(0.5), TurnSettings().end):
        _, signals = machine(said, TurnSettings(end=rule))
        turns[type(rule)] = sum(isinstance(signal, Ended) for _, signal in signals)
    assert turns == {FixedSilence: 3, AdaptiveSilence: 1}


def test_a_slow_speaker_is_waited_for() -> None:
    """The adaptive wait grows with this speaker's pauses, is bounded, and shrinks again."""
    rule = AdaptiveSilence(first_s=0.6, least_s=0.35, most_s=1.5, window=4, brief_s=0)
    settings = TurnSettings(end=rule)
    pause = [LOUD] * 10 + [SOFT] * 15  # 0.48 s
    state, _ = machine(pause + [LOUD] * 10, settings)
    assert end_s(state, settings) == pytest.approx(1.25 * 0.48 + 0.1)
    for _ in range(4):  # four fluent turns: silence until each ends
        while state.phase != "quiet":
            state, _ = step(state, SOFT, settings)
        state, _ = machine([SOFT] * 60 + [LOUD] * 10 + [SOFT], settings, state=state)
    assert end_s(state, settings) == 0.35


def test_a_speaker_who_was_cut_off_gets_a_longer_wait() -> None:
    """The adaptive wait grows if the speaker continues soon after the end of a turn."""
    settings = TurnSettings(end=AdaptiveSilence(first_s=0.4, most_s=1.5))
    state, signals = machine([LOUD] * 20 + [SOFT] * 20 + [LOUD] * 10, settings)
    assert [type(signal) for _, signal in signals].count(Ended) == 1
    assert end_s(state, settings) == pytest.approx(1.25 * 20 * 0.032 + 0.1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"on": 0.2, "off": 0.5}, "allowed: 0 < off ≤ on ≤ 1"),
        ({"preroll_s": -1.0}, "preroll_s is -1.0; allowed: 0 or more seconds"),
        ({"pause_s": float("nan")}, "pause_s is nan"),
    ],
)
def test_bad_settings(wrong: dict[str, float], message: str) -> None:
    """The error names the setting, its value and the allowed values."""
    with pytest.raises(MossliveError, match=message):
        TurnSettings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(MossliveError, match="first_s is 9"):
        AdaptiveSilence(first_s=9)


STREAM = frames((0.5, False), (0.8, True), (0.3, False), (0.4, True), (0.9, False), (0.05, True))


def segmented(rate_hz: int, packets: list[int]) -> tuple[list[object], list[torch.Tensor]]:
    """Signals, and the sound of each turn."""
    wave = torch.from_numpy(STREAM)
    if rate_hz != VAD_HZ:
        wave = torch.repeat_interleave(wave, rate_hz // VAD_HZ)
    segmenter = VadSegmenter(LoudVad(), PLAIN, rate_hz)
    signals: list[object] = []
    turns: list[torch.Tensor] = []
    first, index = 0, 0
    while first < len(wave):
        size = packets[index % len(packets)]
        for item in segmenter.push(wave[first : first + size], interrupting=False):
            if isinstance(item, Sound):
                turns[-1] = torch.cat((turns[-1], item.wave))
            else:
                signals.append(item)
                turns += [torch.zeros(0)] * isinstance(item, Started)
        first, index = first + size, index + 1
    return signals, turns


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.sampled_from([16_000, 48_000]), st.lists(st.integers(37, 5000), min_size=1, max_size=5))
def test_packets_do_not_matter_to_the_segmenter(rate_hz: int, packets: list[int]) -> None:
    """Signals and sound do not depend on the packets, and the sound of a turn is the stream's own,
    from the pre-roll to the frame that ended the turn."""
    signals, turns = segmented(rate_hz, packets)
    whole_signals, whole_turns = segmented(rate_hz, [10**9])
    assert signals == whole_signals
    assert len(turns) == len(whole_turns) == 1
    assert torch.equal(turns[0], whole_turns[0])
    first = next(signal.first for signal in signals if isinstance(signal, Started))
    wave = torch.repeat_interleave(torch.from_numpy(STREAM), rate_hz // VAD_HZ)
    assert torch.equal(turns[0], wave[first : first + len(turns[0])])


def test_silence_is_not_kept() -> None:
    """An hour of silence keeps no more than the pre-roll in memory."""
    segmenter = VadSegmenter(LoudVad(), PLAIN, 16_000)
    for _ in range(500):
        assert segmenter.push(torch.zeros(1600), interrupting=False) == []
    assert sum(map(len, segmenter._held)) <= 4800 + 1600 + FRAME


def test_push_to_talk_turns() -> None:
    """Push to talk: everything between two commits is a turn, including silence."""
    segmenter = PushToTalkSegmenter(16_000)
    assert segmenter.commit() == []
    assert segmenter.push(torch.zeros(0), False) == []
    one = segmenter.push(torch.zeros(100), False)
    assert one[0] == Started(0)
    assert segmenter.commit() == [Ended(100)]
    assert segmenter.push(torch.zeros(7), False)[0] == Started(100)
    segmenter.clear()
    assert segmenter.commit() == []


def test_a_cleared_segmenter_keeps_the_pauses_of_its_speaker() -> None:
    """The learned pauses outlive `commit` and `clear`, which is called with every packet during a
    reply that may not be interrupted."""
    segmenter = VadSegmenter(LoudVad(), replace(PLAIN, end=AdaptiveSilence()), 16_000)
    segmenter.push(torch.from_numpy(frames((0.5, True), (0.4, False), (0.5, True))), False)
    learned = segmenter._state.pauses
    assert learned == pytest.approx((0.4,), abs=0.04)
    segmenter.commit()
    segmenter.clear()
    assert segmenter._state.pauses == learned


def test_a_committed_turn_has_all_its_sound() -> None:
    """On a commit in mid-frame the samples not processed yet belong to that turn and to no
    other."""
    segmenter = VadSegmenter(LoudVad(), PLAIN, 16_000)
    wave = torch.from_numpy(frames((0.5, True))) + 0.1
    wave = wave[:7000]
    heard = [*segmenter.push(wave, False), *segmenter.commit()]
    sound = torch.cat([item.wave for item in heard if isinstance(item, Sound)])
    assert torch.equal(sound, wave)
    assert isinstance(heard[-1], Ended)
    more = segmenter.push(torch.ones(8000), False)
    starts = [item.first for item in more if isinstance(item, Started)]
    assert starts[0] >= 7000


def test_silero_on_silence_and_after_reset() -> None:
    """If Silero is installed, silence is no speech, and reset clears its state."""
    pytest.importorskip("silero_vad")
    from mosslive.talk.vad import SileroVad

    one, other = SileroVad(), SileroVad()
    rng = np.random.default_rng(0)
    noise = [rng.normal(0, 0.1, FRAME).astype(np.float32) for _ in range(5)]
    first = [one.probability(frame) for frame in noise]
    assert [other.probability(frame) for frame in noise] == first
    assert all(0 <= p <= 1 for p in first)
    assert one.probability(noise[0]) != first[0]
    one.reset()
    assert [one.probability(frame) for frame in noise] == first
    one.reset()
    assert max(one.probability(np.zeros(FRAME, np.float32)) for _ in range(10)) < 0.1
