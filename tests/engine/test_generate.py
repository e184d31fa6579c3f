"""The loop around the rows: why a reply ends, and that every page is freed however it ends."""

import gc
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import Generation, LanguageModel, Sampling
from mosslive.cache import OutOfPages
from mosslive.engine.request import Request
from mosslive.errors import MossliveError
from mosslive.rows import RowsError
from tests.engine.models import (
    PROMPTS,
    SETTINGS,
    Alone,
    all_free,
    alone_of,
    answer,
    break_at,
    fresh,
    prompt_rows,
    recomputed,
    rows_run,
    switching_lm,
    watch,
)

SPEECH, TEXT = "mixed to speech", "mixed to text"
FILTERED, GREEDY = SETTINGS["filtered"], SETTINGS["greedy"]
ENDS = "speech to text", replace(GREEDY, max_new=48)  # a reply the model itself ends


switching = pytest.fixture(scope="module")(switching_lm)
alone = pytest.fixture(scope="module")(alone_of)


def ended(request: Request | Generation) -> tuple[list[tuple[int, int]], str | None]:
    rows = request.rows if isinstance(request, Generation) else request.new_rows
    return rows, request.stop


# Why a reply ends.


def test_the_model_ends_its_turn(switching: LanguageModel, alone: Alone) -> None:
    """Stop "stop": only the last row has a stop id, and it stays in the rows."""
    rows, stop = alone(*ENDS)
    stops = [row[0] in switching.ids.stops for row in rows]
    assert (stop, stops) == ("stop", [False] * (len(rows) - 1) + [True])
    assert 2 < len(rows) < ENDS[1].max_new


@pytest.mark.parametrize("short", [1, 2])
def test_a_reply_is_cut_by_length(switching: LanguageModel, alone: Alone, short: int) -> None:
    """Stop "length": exactly max_new rows, the same as without the cut."""
    name, sampling = ENDS
    rows, _ = alone(name, sampling)
    cut = replace(sampling, max_new=len(rows) - short)
    assert answer(fresh(switching), prompt_rows(switching, name), cut) == (rows[:-short], "length")


def test_a_turn_that_ends_on_the_last_row_allowed_is_not_cut(
    switching: LanguageModel, alone: Alone
) -> None:
    """The model's own end is distinguished from the limit, even if both come with one row."""
    name, sampling = ENDS
    rows, _ = alone(name, sampling)
    cut = replace(sampling, max_new=len(rows))
    assert answer(fresh(switching), prompt_rows(switching, name), cut) == (rows, "stop")


@pytest.mark.parametrize("later", [0, 1])
def test_min_new_holds_back_the_end_of_speech_no_longer_than_it_says(
    switching: LanguageModel, alone: Alone, later: int
) -> None:
    """The end of speech may come with row number min_new, and not with an earlier one."""
    prompt, eosp = prompt_rows(switching, SPEECH), switching.ids.eosp
    end = 1 + [row[1] for row in alone(SPEECH, GREEDY).rows].index(eosp)
    sampling = replace(GREEDY, min_new=end + later)
    rows, _ = answer(fresh(switching), prompt, sampling)
    assert rows == recomputed(switching, prompt, sampling).rows
    assert (rows[end - 1][1] == eosp) == (later == 0)


@pytest.mark.parametrize("room", [1, 9])
@pytest.mark.parametrize("tails", ["lazy", "both"])
def test_a_reply_is_cut_by_the_context(
    switching: LanguageModel, alone: Alone, tails: Any, room: int
) -> None:
    """Stop "context": the last position is used, and the rows up to it are unchanged."""
    prompt = prompt_rows(switching, SPEECH)
    lm = fresh(switching, positions=len(prompt) + room)
    expected = alone(SPEECH, FILTERED).rows[:room]
    assert answer(lm, prompt, FILTERED, tails=tails) == (expected, "context")
    assert all_free(lm)
    with pytest.raises(RowsError, match=f"{len(prompt) + room} rows; allowed: at most"):
        lm.generate(prompt + [(1, 1)] * room)


def test_length_and_context_at_once_is_length(switching: LanguageModel) -> None:
    """If both limits are reached at once the reason is "length", because all requested rows
    exist."""
    prompt = prompt_rows(switching, SPEECH)
    lm = fresh(switching, positions=len(prompt) + 4)
    assert answer(lm, prompt, replace(FILTERED, max_new=4)).stop == "length"


# A generation as an object.


def test_a_generation_reports_its_rows_and_its_end(switching: LanguageModel, alone: Alone) -> None:
    """Rows grow one by one; the stop reason is set with the last row and not before."""
    lm = fresh(switching)
    name, sampling = ENDS
    expected = alone(name, sampling)
    generation = lm.generate(prompt_rows(lm, name), sampling)
    assert iter(generation) is generation
    assert ended(generation) == ([], None)
    for count, row in enumerate(generation, start=1):
        assert row == expected.rows[count - 1]
        assert ended(generation) == (
            expected.rows[:count],
            expected.stop if count == len(expected.rows) else None,
        )
        assert all_free(lm) == (count == len(expected.rows))  # freed with the last row
    with pytest.raises(StopIteration):
        next(generation)
    assert ended(generation) == expected


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_closing_frees_the_pages(switching: LanguageModel, alone: Alone, rows: int) -> None:
    """An early close frees the pages at once, keeps the rows so far, sets no stop reason and adds
    nothing."""
    lm = fresh(switching)
    generation = lm.generate(prompt_rows(lm, SPEECH), FILTERED)
    assert list(islice(generation, rows)) == alone(SPEECH, FILTERED).rows[:rows]
    assert all_free(lm) == (rows == 0)
    for _ in range(2):
        generation.close()
        assert all_free(lm)
    assert list(generation) == []
    assert ended(generation) == (alone(SPEECH, FILTERED).rows[:rows], None)


@pytest.mark.parametrize("rows", [1, 5])
def test_dropping_a_generation_frees_the_pages(switching: LanguageModel, rows: int) -> None:
    """Dropping the object frees its pages without a call of close."""
    lm = fresh(switching)
    generation = lm.generate(prompt_rows(lm, SPEECH), FILTERED)
    list(islice(generation, rows))
    assert not all_free(lm)
    del generation
    gc.collect()
    assert all_free(lm)


@pytest.mark.parametrize("rows", range(1, 9))
def test_closing_a_batch_at_any_row_frees_all_pages(
    switching: LanguageModel, alone: Alone, rows: int
) -> None:
    """Closing frees all pages, within a step and between steps, whichever request was served
    last."""
    lm = fresh(switching)
    asks = [(name, replace(FILTERED, max_new=2)) for name in (SPEECH, TEXT)] + [ENDS]
    requests, stream = lm.generate_many([(prompt_rows(lm, n), s) for n, s in asks])
    given_out = list(islice(stream, rows))
    stream.close()
    assert all_free(lm)
    for number, request in enumerate(requests):
        expected = alone(*asks[number]).rows
        mine = [row for which, row in given_out if which == number]
        assert mine == expected[: len(mine)]
        assert request.new_rows == expected[: len(request.new_rows)]


def test_an_unknown_choice_of_tails_is_refused(switching: LanguageModel) -> None:
    """The error names the value and the choices, before anything runs."""
    prompt, wrong = prompt_rows(switching, "short"), "none"
    for call in (
        lambda: switching.generate(prompt, tails=wrong),  # type: ignore[arg-type]
        lambda: switching.generate_many([(prompt, None)], tails=wrong),  # type: ignore[arg-type]
    ):
        with pytest.raises(MossliveError, match="tails is 'none'; allowed: lazy or both"):
            call()


# What is computed.


@pytest.mark.parametrize(
    ("name", "sampling", "idle"),
    [("text to speech", FILTERED, "text"), ("short", SETTINGS["hot, pad"], "audio")],
)
def test_an_unused_tail_does_not_run(
    nano_lm: LanguageModel,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    sampling: Sampling,
    idle: str,
) -> None:
    """A tail whose logits are not needed never runs; with tails="both" it runs on every row."""
    lm = fresh(nano_lm)
    passes = watch(monkeypatch, lm.runner.decoder)
    reply = answer(lm, prompt_rows(lm, name), sampling)
    computed = len(prompt_rows(lm, name)) + len(reply.rows) - 1
    busy = "audio" if idle == "text" else "text"
    assert [rows_run(passes, which) for which in ("trunk", busy, idle)] == [computed, computed, 0]
    other = fresh(nano_lm)
    passes = watch(monkeypatch, other.runner.decoder)
    assert answer(other, prompt_rows(lm, name), sampling, tails="both") == reply
    assert [rows_run(passes, which) for which in ("trunk", busy, idle)] == [computed] * 3


# Running out of pages.


def test_a_prompt_larger_than_the_pool_is_refused_with_numbers(switching: LanguageModel) -> None:
    """`OutOfPages` comes with the first row, carries its numbers, and leaves the pool free."""
    lm = fresh(switching, pages=3, page_size=4)
    prompt = prompt_rows(lm, SPEECH)
    generation = lm.generate(prompt, FILTERED)
    wanted = -(-len(prompt) // 4)
    with pytest.raises(OutOfPages, match=rf"^{wanted} pages wanted and 3 of 3 free \(4 rows") as e:
        next(generation)
    assert (e.value.wanted, e.value.free, e.value.total) == (wanted, 3, 3)
    assert ended(generation) == ([], "pages")
    assert all_free(lm)
    short = prompt_rows(lm, "short")
    one = replace(FILTERED, max_new=1)
    assert answer(lm, short, one) == answer(fresh(switching), short, one)


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_a_reply_uses_every_page_before_it_is_refused(
    switching: LanguageModel, alone: Alone, page_size: int
) -> None:
    """If pages run out in the middle of a reply, the rows before that are right and all pages are
    free afterwards."""
    prompt = prompt_rows(switching, SPEECH)
    pages = -(-len(prompt) // page_size) + 1
    lm = fresh(switching, pages=pages, page_size=page_size)
    generation = lm.generate(prompt, FILTERED)
    # A row needs no page of its own until the one after it is wanted.
    fits = pages * page_size - len(prompt) + 1
    assert list(islice(generation, fits)) == alone(SPEECH, FILTERED).rows[:fits]
    with pytest.raises(OutOfPages, match=f"^1 pages wanted and 0 of {pages} free"):
        next(generation)
    assert ended(generation) == (alone(SPEECH, FILTERED).rows[:fits], "pages")
    assert all_free(lm)


def test_one_request_without_pages_affects_no_other(switching: LanguageModel, alone: Alone) -> None:
    """One request never starts and one runs out of pages in the middle; the others use its pages at
    once."""
    size, some = 10, replace(FILTERED, max_new=14)
    asks = [("short", some), (SPEECH, some), (TEXT, some), ENDS]
    lengths = [len(prompt_rows(switching, name)) for name, _ in asks]
    fits = [1 + -length % size for length in lengths]  # rows before one more page is needed
    assert fits[1] < min(fits[0], fits[2])
    assert max(fits[0], fits[2]) < some.max_new
    pages = sum(-(-length // size) for length in lengths[:3])
    lm = fresh(switching, pages=pages, page_size=size)
    requests, stream = lm.generate_many([(prompt_rows(lm, n), s) for n, s in asks])
    rows = list(stream)
    for number in (0, 2):
        assert ended(requests[number]) == alone(*asks[number])
    assert ended(requests[1]) == (alone(*asks[1]).rows[: fits[1]], "pages")
    assert ended(requests[3]) == ([], "pages")
    assert len(rows) == sum(len(request.new_rows) for request in requests)
    for number, wanted in ((1, 1), (3, -(-lengths[3] // size))):
        refusal = requests[number].refusal
        assert refusal is not None
        assert (refusal.wanted, refusal.total) == (wanted, pages)
        assert refusal.free < wanted
    assert all_free(lm)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    names=st.lists(st.sampled_from(sorted(PROMPTS)), min_size=2, max_size=5),
    setting=st.sampled_from(["filtered", "hot, pad"]),
    rows=st.integers(20, 300),
    page_size=st.sampled_from([1, 4, 16]),
)
def test_a_batch_on_any_pool_is_exact_or_refused(
    switching: LanguageModel,
    alone: Alone,
    names: list[str],
    setting: str,
    rows: int,
    page_size: int,
) -> None:
    """Every request ends as if alone, or by "pages" with the rows it would have had so far."""
    lm = fresh(switching, pages=-(-rows // page_size), page_size=page_size)
    sampling = SETTINGS[setting]
    requests, stream = lm.generate_many([(prompt_rows(lm, name), sampling) for name in names])
    list(stream)
    for request, name in zip(requests, names, strict=True):
        expected = alone(name, sampling)
        made = request.new_rows
        if request.stop == "pages":
            assert made == expected.rows[: len(made)] != expected.rows
        else:
            assert ended(request) == expected
        assert (request.refusal is not None) == (request.stop == "pages")
    assert all_free(lm)


# Failures in the middle.


@pytest.mark.parametrize("call", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("method", ["trunk", "tail", "logits"])
def test_a_failure_at_any_step_frees_all_and_spoils_nothing(
    switching: LanguageModel, alone: Alone, monkeypatch: pytest.MonkeyPatch, method: str, call: int
) -> None:
    """All pages are freed, and partly written rows are never taken for computed later."""
    lm = fresh(switching, page_size=4)
    with monkeypatch.context() as patch:
        break_at(patch, lm.runner.decoder, method, call)
        generation = lm.generate(prompt_rows(lm, TEXT), FILTERED)
        with pytest.raises(RuntimeError, match=f"{method} broke at call {call}"):
            list(generation)
    made, stop = ended(generation)
    assert (made, stop) == (alone(TEXT, FILTERED).rows[: len(made)], None)
    assert all_free(lm)
    for name in (TEXT, SPEECH):
        assert answer(lm, prompt_rows(lm, name), FILTERED) == alone(name, FILTERED)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("others", [(), (SPEECH,), (TEXT, "speech to text")])
def test_tails_that_failed_on_shared_pages_are_computed_again(
    switching: LanguageModel,
    alone: Alone,
    monkeypatch: pytest.MonkeyPatch,
    others: tuple[str, ...],
    error: type[BaseException],
) -> None:
    """A failed catch-up on shared pages, alone or in a batch, unmarks its rows."""
    lm = fresh(switching, pages=200, page_size=4)
    one = replace(FILTERED, max_new=1)
    answer(lm, prompt_rows(lm, SPEECH), one)  # speaks one row: no text tail
    names = (TEXT, *others)
    with monkeypatch.context() as patch:
        break_at(patch, lm.runner.decoder, "tail", call=1, error=error)
        _, stream = lm.generate_many([(prompt_rows(lm, name), FILTERED) for name in names])
        with pytest.raises(error, match="tail broke at call 1"):
            list(stream)
    assert all_free(lm)
    requests, stream = lm.generate_many([(prompt_rows(lm, name), FILTERED) for name in names])
    list(stream)
    assert [ended(request) for request in requests] == [alone(n, FILTERED) for n in names]


@pytest.mark.parametrize("method", ["trunk", "tail", "logits"])
def test_a_failure_leaves_other_generations_alone(
    switching: LanguageModel, alone: Alone, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Another generation open on the same pages continues exactly after a failure."""
    lm = fresh(switching, page_size=4)
    spoken = lm.generate(prompt_rows(lm, SPEECH), FILTERED)
    rows = list(islice(spoken, 3))
    held = lm.pool.free
    with monkeypatch.context() as patch:
        break_at(patch, lm.runner.decoder, method, call=1)
        with pytest.raises(RuntimeError, match=f"{method} broke"):
            next(lm.generate(prompt_rows(lm, TEXT), FILTERED))
    assert lm.pool.free == held
    rows += spoken
    assert (rows, spoken.stop) == alone(SPEECH, FILTERED)
    assert all_free(lm)
