"""Speech probabilities: many microphones at once, and computed somewhere else."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.talk.segmenter import VadSegmenter
from mosslive.talk.turn_detection import FixedSilence, TurnSettings
from mosslive.talk.vad import FRAME_SAMPLES, SileroVad, Speech, probabilities
from mosslive.talk.vad_frames import FrameStream, GivenSpeech
from tests.codec.conftest import speech
from tests.talk.rig import LoudVad, frames
from tests.talk.test_user_input import Recorder, user_input

PLAIN = TurnSettings(end=FixedSilence())
STREAM = frames((0.3, False), (0.6, True), (0.6, False), (0.5, True), (0.7, False), (0.1, True))


def test_a_batch_equals_single_calls() -> None:
    """Each microphone gets from a batch what it gets alone, whoever else is in the batch."""
    streams, alone, together = 5, [SileroVad() for _ in range(5)], [SileroVad() for _ in range(5)]
    waves = [speech(0.5, 16_000, seed) for seed in range(streams)]
    chosen = np.random.default_rng(3)
    heard = [0] * streams
    for _ in range(40):
        who = [one for one in range(streams) if chosen.random() < 0.6 and heard[one] < 15]
        if not who:
            continue
        cut = [waves[one][heard[one] * FRAME_SAMPLES :][:FRAME_SAMPLES] for one in who]
        got = probabilities([together[one] for one in who], cut)
        expected = [alone[one].probability(frame) for one, frame in zip(who, cut, strict=True)]
        assert got == pytest.approx(expected, abs=1e-5)
        for one in who:
            heard[one] += 1
    assert min(heard) > 5


def test_other_detectors_run_one_by_one() -> None:
    """Detectors without a batch are called for each frame."""
    loud, soft = np.ones(FRAME_SAMPLES, np.float32), np.zeros(FRAME_SAMPLES, np.float32)
    assert probabilities([LoudVad(), LoudVad()], [loud, soft]) == [1.0, 0.0]


def computed(wave: torch.Tensor, rate_hz: int) -> list[float]:
    stream, vad = FrameStream(rate_hz), LoudVad()
    stream.push(wave)
    return [vad.probability(stream.take()) for _ in range(stream.waiting)]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    st.sampled_from([8000, 16_000, 48_000]),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 9)), min_size=1, max_size=6),
)
def test_given_probabilities_equal_a_vad(rate_hz: int, packets: list[tuple[int, int]]) -> None:
    """A segmenter with probabilities from elsewhere gives the same signals and sound as one with a
    VAD, however they are cut, early ones included."""
    wave = torch.from_numpy(STREAM)
    wave = wave[::2] if rate_hz == 8000 else torch.repeat_interleave(wave, rate_hz // 16_000)
    local = VadSegmenter(LoudVad(), PLAIN, rate_hz)
    given = GivenSpeech(rate_hz)
    remote = VadSegmenter(given, PLAIN, rate_hz)
    assert (local.slow, remote.slow) == (True, False)
    known, first, expected, got = computed(wave, rate_hz), 0, list[object](), list[object]()
    for size, ahead in [*packets, (len(wave), 10_000)]:
        given.give(known[:ahead])
        del known[:ahead]
        piece, first = wave[first : first + size], first + size
        for segmenter, items in ((local, expected), (remote, got)):
            items += segmenter.push(piece, interrupting=False)
            while segmenter.behind:
                items += segmenter.push(torch.zeros(0), interrupting=False)
    assert _flat(got) == _flat(expected)


def _flat(items: list[object]) -> list[object]:
    """Sounds as samples, so that their cut does not matter; signals at their place among them."""
    flat: list[object] = []
    for item in items:
        flat += item.wave.tolist() if hasattr(item, "wave") else [item]
    return flat


@pytest.mark.parametrize("packet", [320, 511, 4000])
def test_user_input_with_given_speech(packet: int) -> None:
    """Turns are the same with probabilities that come with the sound, across a new stream."""

    async def story() -> None:
        wave = torch.from_numpy(STREAM)
        expected, got = Recorder(), Recorder()
        local, remote = user_input(expected, None), user_input(got, None)
        for stream in (1, 2):
            frames_of, vad = FrameStream(16_000), LoudVad()
            local._outdated = True  # as a change of the settings does
            for first in range(0, len(wave), packet):
                piece = wave[first : first + packet]
                frames_of.push(piece)
                found = [vad.probability(frames_of.take()) for _ in range(frames_of.waiting)]
                local.push(piece, 16_000)
                remote.push(piece, 16_000, Speech(stream, found))
            assert got.items == expected.items
            assert local.commit("speech") == remote.commit("speech")
        assert len(got.items) > 20_000

    import asyncio

    asyncio.run(story())
