"""Cached, lazy, chunked, batched and shared generation give the rows of the plain definition."""

from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import Generation, LanguageModel, Sampling
from mosslive.cache import OutOfPages
from mosslive.config.sampling import IgnoredAudio
from tests.engine.models import (
    PROMPTS,
    SETTINGS,
    Alone,
    all_free,
    alone_of,
    answer,
    fresh,
    prompt_rows,
    recomputed,
    rows_run,
    switching_lm,
    watch,
)

few = settings(max_examples=15, deadline=None, derandomize=True)


def _sampling(name: str, max_new: int) -> Sampling:
    return replace(SETTINGS[name], max_new=max_new)


samplings = st.builds(_sampling, st.sampled_from(sorted(SETTINGS)), st.sampled_from([1, 6, 17, 32]))
asks = st.tuples(st.sampled_from(sorted(PROMPTS)), samplings)
chunks = st.sampled_from([1, 3, 7, 16, 512]) | st.integers(1, 100)


switching = pytest.fixture(scope="module")(switching_lm)
alone = pytest.fixture(scope="module")(alone_of)


@pytest.fixture(scope="module")
def models(nano_lm: LanguageModel, switching: LanguageModel) -> dict[str, LanguageModel]:
    return {"nano": nano_lm, "switching": switching}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize("model", ["nano", "switching"])
def test_cached_generation_is_full_recomputation(
    models: dict[str, LanguageModel], model: str, name: str, setting: str
) -> None:
    """With pages, every row equals that of a forward pass over the whole history."""
    lm = fresh(models[model])
    prompt = prompt_rows(lm, name)
    expected = recomputed(lm, prompt, SETTINGS[setting])
    assert answer(lm, prompt, SETTINGS[setting]) == (expected.rows, expected.stop)
    assert all_free(lm)


@pytest.mark.parametrize("ignored_audio", ["sample", "pad"])
@pytest.mark.parametrize("setting", ["greedy", "filtered"])
@pytest.mark.parametrize("name", PROMPTS)
def test_lazy_tails_are_both_tails_across_mode_changes(
    switching: LanguageModel, name: str, setting: str, ignored_audio: IgnoredAudio
) -> None:
    """A tail that missed rows gives the same logits after it has processed them, in replies that
    change their mode in both directions."""
    sampling = replace(SETTINGS[setting], max_new=48, ignored_audio=ignored_audio)
    prompt = prompt_rows(switching, name)
    expected = recomputed(switching, prompt, sampling)
    changes = set(zip(expected.modes, expected.modes[1:], strict=False))
    assert changes >= {("text", "audio"), ("audio", "text")}
    lazy, both = (answer(fresh(switching), prompt, sampling, tails=t) for t in ("lazy", "both"))
    assert lazy == both == (expected.rows, expected.stop)


@few
@given(ask=asks, chunk=chunks, page_size=st.integers(1, 20))
def test_chunked_prefill_is_one_prefill(
    switching: LanguageModel, alone: Alone, ask: tuple[str, Sampling], chunk: int, page_size: int
) -> None:
    """Passes of any size, over pages of any size, give the rows of one pass over the prompt."""
    lm = fresh(switching, pages=160, page_size=page_size, chunk=chunk)
    name, sampling = ask
    assert answer(lm, prompt_rows(lm, name), sampling) == alone(name, sampling)


@few
@given(
    batch=st.lists(asks, min_size=2, max_size=6),
    chunk=chunks,
    tails=st.sampled_from(["lazy", "both"]),
)
def test_a_batch_is_each_request_alone(
    switching: LanguageModel,
    alone: Alone,
    batch: list[tuple[str, Sampling]],
    chunk: int,
    tails: Any,
) -> None:
    """The other requests of a batch, and when they end, change neither the rows nor the end of a
    request."""
    lm = fresh(switching, chunk=chunk)
    asked = [(prompt_rows(lm, name), sampling) for name, sampling in batch]
    requests, stream = lm.generate_many(asked, tails=tails)
    given_out: list[list[tuple[int, int]]] = [[] for _ in batch]
    for number, row in stream:
        given_out[number].append(row)
    for request, rows, ask in zip(requests, given_out, batch, strict=True):
        assert (rows, request.stop) == alone(*ask)
        assert request.new_rows == rows
    assert all_free(lm)


def test_a_batch_of_everything_is_each_alone(switching: LanguageModel, alone: Alone) -> None:
    """A batch of all prompts under all settings, which end at different times, has exact rows."""
    lm = fresh(switching, pages=300, page_size=8)
    everything = [(name, SETTINGS[setting]) for name in PROMPTS for setting in SETTINGS]
    requests, stream = lm.generate_many([(prompt_rows(lm, n), s) for n, s in everything])
    order = [number for number, _ in stream]
    assert order[: len(everything)] == list(range(len(everything)))  # in lockstep
    assert [(r.new_rows, r.stop) for r in requests] == [alone(*ask) for ask in everything]
    assert {request.stop for request in requests} == {"stop", "length"}


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("setting", ["greedy", "hot, pad"])
def test_page_size_changes_nothing(
    switching: LanguageModel, alone: Alone, page_size: int, setting: str
) -> None:
    """Rows are the same for pages of 1, 16 and 64 rows, one request after another."""
    lm = fresh(switching, pages=-(-160 // page_size), page_size=page_size)
    for name in PROMPTS:
        assert answer(lm, prompt_rows(lm, name), SETTINGS[setting]) == alone(
            name, SETTINGS[setting]
        )


@pytest.mark.parametrize("running", [True, False], ids=["first runs on", "first has ended"])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("second", ["text to speech", "mixed to text"])
def test_a_shared_prefix_is_computed_once(
    switching: LanguageModel,
    alone: Alone,
    monkeypatch: pytest.MonkeyPatch,
    second: str,
    page_size: int,
    running: bool,
) -> None:
    """Full pages that contain the start of a prompt are shared, and the rows stay the same."""
    lm = fresh(switching, pages=-(-300 // page_size), page_size=page_size)
    sampling = SETTINGS["filtered"]
    one, other = (prompt_rows(lm, name) for name in ("mixed to speech", second))
    common = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    )
    first = lm.generate(one, sampling)
    rows = [next(first), next(first)]
    if not running:
        rows += first
    passes = watch(monkeypatch, lm.runner.decoder)
    reply = answer(lm, other, sampling)
    shared = common // page_size * page_size
    assert shared > 0
    assert rows_run(passes, "trunk") == len(other) - shared + len(reply.rows) - 1
    assert reply == alone(second, sampling)
    assert rows + list(first) == alone("mixed to speech", sampling).rows
    assert all_free(lm)


def test_equal_prompts_in_one_batch_are_independent(switching: LanguageModel, alone: Alone) -> None:
    """Equal prompts in one prefill, and a third that shares their pages later, have exact rows."""
    lm, name = fresh(switching, page_size=4), "mixed to text"
    prompt = prompt_rows(lm, name)
    both = [SETTINGS["filtered"], SETTINGS["greedy"]]
    requests, stream = lm.generate_many([(prompt, sampling) for sampling in both])
    next(stream)
    third = lm.generate(prompt, SETTINGS["plain"])
    next(third)
    assert len(list(stream)) + 1 == sum(len(request.new_rows) for request in requests)
    assert [(r.new_rows, r.stop) for r in requests] == [alone(name, s) for s in both]
    list(third)
    assert (third.rows, third.stop) == alone(name, SETTINGS["plain"])


def _advance(generation: Generation, rows: int) -> bool:
    """Generates up to `rows` rows; returns True if the reply has not ended."""
    try:
        return all(next(generation, None) is not None for _ in range(rows))
    except OutOfPages:
        assert generation.stop == "pages"
        return False


@few
@given(
    choices=st.lists(asks, min_size=4, max_size=4),
    moves=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=8, max_size=20),
    page_size=st.integers(1, 9),
)
def test_generations_in_any_order_on_a_small_pool_are_exact(
    switching: LanguageModel,
    alone: Alone,
    choices: list[tuple[str, Sampling]],
    moves: list[tuple[int, int]],
    page_size: int,
) -> None:
    """Generations that share pages, overtake, close or are refused have exact rows and free every
    page."""
    lm = fresh(switching, pages=-(-180 // page_size), page_size=page_size)
    running: dict[int, Generation] = {}
    for index, rows in moves:  # no rows: close it
        name, sampling = choices[index]
        prompt = prompt_rows(lm, name)
        generation = running.setdefault(index, lm.generate(prompt, sampling))
        if not rows or not _advance(generation, rows):
            generation.close()
            del running[index]
        made = generation.rows
        assert made == alone(name, sampling).rows[: len(made)]
        assert generation.stop in (None, "pages", alone(name, sampling).stop)
    for generation in running.values():
        generation.close()
    assert all_free(lm)
