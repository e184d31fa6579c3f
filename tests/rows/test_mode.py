"""The mode machine: every transition, then a property test of the whole loop."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.cache import PagePool, PageTable
from mosslive.config import Sampling
from mosslive.engine.request import Request
from mosslive.engine.sample import sample_row
from mosslive.kernels import uniform
from mosslive.rows import Mode, Row, RowIds, compose, ends_reply, first_mode, next_mode
from tests.reference.straight_loop import Ids, Settings, Trace, straight_loop

IDS = RowIds(
    modality_pad=20,
    sosp=21,
    eosp=12,
    audio_pad=5,
    stops=frozenset({22, 23}),
    text_size=24,
    audio_size=16,
)
TEXT, PAD, SOSP, STOP = 3, 20, 21, 22
CODE, AUDIO_PAD, EOSP = 7, 5, 12


@pytest.mark.parametrize(
    ("last", "mode"),
    [
        ((TEXT, AUDIO_PAD), "text"),
        ((SOSP, AUDIO_PAD), "text"),  # a speech prompt: the first step moves it to audio
        ((TEXT, CODE), "text"),
        ((PAD, CODE), "audio"),
        ((PAD, EOSP), "audio"),
        ((PAD, AUDIO_PAD), "text"),  # a code equal to the pad: the second test wins
    ],
)
def test_first_mode(last: Row, mode: Mode) -> None:
    """The initial mode follows from the last prompt row; the pad test comes last and wins."""
    assert first_mode(last, IDS) == mode


@pytest.mark.parametrize(
    ("mode", "last", "after"),
    [
        ("text", (TEXT, CODE), "text"),
        ("text", (SOSP, AUDIO_PAD), "audio"),
        ("text", (SOSP, CODE), "audio"),
        ("text", (TEXT, EOSP), "text"),
        ("text", (PAD, CODE), "text"),  # a placeholder written in text mode changes nothing
        ("text", (SOSP, EOSP), "text"),  # both tests fire
        ("audio", (PAD, CODE), "audio"),
        ("audio", (PAD, AUDIO_PAD), "audio"),
        ("audio", (PAD, EOSP), "text"),
        ("audio", (SOSP, CODE), "audio"),
        ("audio", (STOP, CODE), "audio"),
    ],
)
def test_every_transition(mode: Mode, last: Row, after: Mode) -> None:
    """The start-of-speech test comes before the end-of-speech test; both may apply."""
    assert next_mode(mode, last, IDS) == after


def test_overwrite_and_stop() -> None:
    """In audio mode the text id is overwritten, so only text mode can end a reply. Both stop ids
    end it; the end of speech alone does not."""
    assert compose("audio", STOP, CODE, IDS) == (PAD, CODE)
    assert compose("text", STOP, CODE, IDS) == (STOP, CODE)
    assert ends_reply((22, CODE), IDS)
    assert ends_reply((23, CODE), IDS)
    assert not ends_reply((PAD, EOSP), IDS)
    assert not ends_reply((TEXT, EOSP), IDS)


class Loop:
    """Runs a `Request` on given logits instead of a model."""

    def __init__(self, logits: np.ndarray, prompt: list[Row], sampling: Sampling) -> None:
        self.request = Request(
            prompt, sampling, IDS, PageTable(PagePool(1, 1)), context_rows=10_000
        )
        modes: list[str] = []
        while not self.request.stop:
            k = len(self.request.new_rows)
            self.request.begin_step()
            modes.append(self.request.mode)
            both = {
                "text": torch.from_numpy(logits[k, : IDS.text_size]),
                "audio": torch.from_numpy(logits[k, : IDS.audio_size]),
            }
            sample_row(self.request, {c: both[c] for c in self.request.channels})
        self.trace = Trace(self.request.new_rows, modes, str(self.request.stop))


def reference(logits: np.ndarray, prompt: list[Row], sampling: Sampling) -> Trace:
    start = len(prompt)
    ids = Ids(IDS.modality_pad, IDS.sosp, IDS.eosp, IDS.audio_pad, tuple(IDS.stops))
    chosen = Settings(
        sampling.greedy,
        sampling.temperature,
        sampling.top_k,
        sampling.top_p,
        sampling.repetition_penalty,
        sampling.max_new,
        sampling.min_new,
    )
    return straight_loop(
        lambda rows: (
            logits[len(rows) - start, : IDS.text_size],
            logits[len(rows) - start, : IDS.audio_size],
        ),
        prompt,
        ids,
        chosen,
        lambda step, channel: uniform(sampling.seed, step, channel),
    )


rows_strategy = st.lists(
    st.tuples(
        st.sampled_from([TEXT, 4, PAD, SOSP, STOP, 23]),
        st.sampled_from([CODE, AUDIO_PAD, EOSP, 0]),
    ),
    min_size=1,
    max_size=6,
)
sampling_strategy = st.builds(
    Sampling,
    greedy=st.booleans(),
    temperature=st.sampled_from([0.5, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 3, 8, 100]),
    top_p=st.sampled_from([0.2, 0.75, 0.95, 1.0]),
    repetition_penalty=st.sampled_from([0.8, 1.0, 1.1, 2.0]),
    max_new=st.integers(1, 25),
    min_new=st.integers(0, 12),
    seed=st.integers(0, 2**64 - 1),
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    st.integers(0, 2**32 - 1), rows_strategy, sampling_strategy, st.sampled_from(["fine", "tied"])
)
def test_the_loop_equals_the_independent_reference(
    seed: int, prompt: list[Row], sampling: Sampling, grain: str
) -> None:
    """The loop runs in the published order: transition, mask, penalty, temperature, top-k, top-p,
    sample (or arg-max with the lowest index on ties), overwrite, append, stop. The reference shares
    no code with it; the logits are random, many of them exactly tied."""
    logits = np.random.default_rng(seed).normal(0, 3, (sampling.max_new, 24)).astype(np.float32)
    if grain == "tied":
        logits = np.round(logits)
    logits[:, SOSP] += 2  # so that speech starts and ends, and replies stop, within a few rows
    logits[:, EOSP] += 2
    assert Loop(logits, prompt, sampling).trace == reference(logits, prompt, sampling)


def test_mode_changes_do_happen_in_the_property_test() -> None:
    """The logits of the test above reach both modes, all transitions and both stop reasons."""
    seen: set[tuple[str, str]] = set()
    stops: set[str] = set()
    for seed in range(40):
        sampling = Sampling(max_new=25, seed=seed)
        logits = np.random.default_rng(seed).normal(0, 3, (25, 24)).astype(np.float32)
        logits[:, [SOSP, EOSP]] += 2
        trace = Loop(logits, [(SOSP, AUDIO_PAD)], sampling).trace
        seen |= set(zip(trace.modes, trace.modes[1:], strict=False))
        stops.add(trace.stop)
    assert seen == {("text", "text"), ("text", "audio"), ("audio", "audio"), ("audio", "text")}
    assert stops == {"stop", "length"}


FLAT = np.zeros((4, 24), dtype=np.float32)


def test_min_new_masks_the_end_of_speech_strictly_below_it() -> None:
    """min_new 3 masks the end of speech at steps 1 and 2, counted from 1."""
    logits = FLAT.copy()
    logits[:, EOSP] = 9
    trace = Loop(logits, [(SOSP, AUDIO_PAD)], Sampling(greedy=True, max_new=4, min_new=3)).trace
    assert [row[1] for row in trace.rows[:3]] == [0, 0, EOSP]


def test_ids_above_the_end_of_speech_are_never_sampled() -> None:
    """The audio mask also applies in text mode, where the audio id only stays in the grid."""
    logits = FLAT.copy()
    logits[:, EOSP + 1 :] = 50
    for prompt in ([(SOSP, AUDIO_PAD)], [(TEXT, AUDIO_PAD)]):
        trace = Loop(logits[:, :24], list(prompt), Sampling(greedy=True, max_new=4)).trace
        assert all(row[1] <= EOSP for row in trace.rows)


def test_the_penalty_counts_prompt_codes_pads_and_ignored_samples_once() -> None:
    """The penalty covers the channel's whole history and counts each id once."""
    logits = FLAT.copy()
    logits[:, AUDIO_PAD] = 1.0  # in the history of every prompt
    logits[:, 9] = 0.6
    trace = Loop(
        logits,
        [(PAD, CODE), (PAD, CODE), (SOSP, AUDIO_PAD), (SOSP, AUDIO_PAD)],
        Sampling(greedy=True, repetition_penalty=1.5, max_new=1),
    ).trace
    # 1.0 / 1.5 = 0.67 still wins; penalised twice (0.44) it would lose against 0.6.
    assert trace.rows == [(PAD, AUDIO_PAD)]


def test_padded_ignored_audio_leaves_the_text_channel_alone() -> None:
    """`ignored_audio="pad"` writes the pad in text rows and changes no text id and no code."""
    logits = np.random.default_rng(3).normal(0, 3, (20, 24)).astype(np.float32)
    grids = [
        Loop(logits, [(TEXT, AUDIO_PAD)], Sampling(max_new=20, seed=4, ignored_audio=how)).trace
        for how in ("sample", "pad")
    ]
    assert grids[0].modes == grids[1].modes
    for mode, sampled, padded in zip(grids[0].modes, grids[0].rows, grids[1].rows, strict=True):
        assert sampled[0] == padded[0]
        assert padded[1] == (sampled[1] if mode == "audio" else AUDIO_PAD)


def test_the_second_stop_is_the_end_of_text() -> None:
    """The stop ids are im_end and endoftext; a different pad id does not end a reply."""
    from mosslive.checkpoint.synth import synth_config
    from mosslive.checkpoint.vocabulary import learned_vocabulary

    vocabulary = learned_vocabulary()
    config = replace(synth_config("nano", vocabulary), pad_token_id=0)
    ids = RowIds.from_config(config, vocabulary.end_of_text)
    assert ids.stops == {vocabulary.turn_end, vocabulary.end_of_text}
    assert RowIds.from_config(config).stops == {vocabulary.turn_end, 0}
