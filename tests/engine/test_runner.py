"""The runner over page tables: prefill in pieces, forks, truncation, tails that missed rows."""

from contextlib import suppress
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import LanguageModel, Sampling
from mosslive.cache import OutOfPages, PagePool, PageTable
from mosslive.engine.request import Request
from mosslive.engine.runner import Runner
from mosslive.engine.stepper import PlainStepper
from mosslive.rows import CHANNELS, Channel, Row
from tests.engine.models import (
    SETTINGS,
    all_free,
    answer,
    break_at,
    fresh,
    prompt_rows,
    stored_bits,
    switching_lm,
    watch,
)

PROMPT = "mixed to speech"
OTHER = "mixed to text"
NOT_COMPUTED = torch.tensor(float("nan")).view(torch.int32)  # what `fresh` fills pages with


switching = pytest.fixture(scope="module")(switching_lm)


def extend(lm: LanguageModel, table: PageTable, rows: list[Row]) -> None:
    """Appends rows to a table and runs them through the trunk."""
    first = len(table)
    lm.runner.reserve(table, rows)
    lm.runner.trunk([(table, first)])


def prefill(lm: LanguageModel, rows: list[Row]) -> PageTable:
    """Returns a new table; pages that contain its first rows are shared."""
    table = PageTable(lm.pool)
    shared = table.adopt(rows)
    extend(lm, table, rows[shared:])
    return table


def assert_logits(lm: LanguageModel, tail: Channel, tables: list[PageTable]) -> None:
    """Checks that a tail's logits of each last row equal those of a forward pass."""
    index = CHANNELS.index(tail)
    expected = torch.stack([lm.forward(table.rows)[index][-1] for table in tables])
    given_out = lm.runner.tail_logits(tail, tables)
    torch.testing.assert_close(given_out, expected, atol=1e-5, rtol=1e-5)


def assert_kept(lm: LanguageModel, table: PageTable, before: list[torch.Tensor]) -> None:
    """Checks that the table's first rows have the bits of `before`, where they were computed."""
    for was, now in zip(before, stored_bits(lm.runner, table), strict=True):
        computed = was != NOT_COMPUTED
        assert torch.equal(was[computed], now[: len(was)][computed])


def request_on(lm: LanguageModel, table: PageTable, rows: list[Row], sampling: Sampling) -> Request:
    """Returns a request with history `rows`, whose first rows the table has computed."""
    context_rows = lm.config.max_position_embeddings
    return Request(rows[len(table) :], sampling, lm.ids, table, context_rows)


def advance(lm: LanguageModel, request: Request, rows: int) -> list[Row]:
    """Decodes up to `rows` more rows, until the reply ends."""
    for _ in range(rows):
        if request.stop:
            break
        (made,) = PlainStepper(lm.runner).decode([request])
        assert isinstance(made, tuple), made
    return request.new_rows


@pytest.mark.parametrize("chunk", [0, -3])
def test_a_chunk_below_one_is_refused(nano_lm: LanguageModel, chunk: int) -> None:
    """The message names the setting, the value and what is allowed."""
    with pytest.raises(ValueError, match=f"chunk is {chunk}; allowed: 1 or more rows"):
        Runner(nano_lm.runner.decoder, PagePool(1, 1), chunk)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    pieces=st.lists(st.integers(1, 25), min_size=1, max_size=8),
    chunk=st.sampled_from([1, 3, 7, 16, 512]),
    page_size=st.integers(1, 20),
)
def test_prefill_in_pieces_equals_one_prefill(
    nano_lm: LanguageModel, pieces: list[int], chunk: int, page_size: int
) -> None:
    """Rows that arrive a few at a time give the logits of the whole at once, for both tails."""
    lm = fresh(nano_lm, pages=90, page_size=page_size, chunk=chunk)
    rows = prompt_rows(lm, OTHER)
    table = PageTable(lm.pool)
    for piece in pieces:
        extend(lm, table, rows[len(table) : len(table) + piece])
        if piece % 3 == 0:  # a tail may run at any time, or not at all
            lm.runner.tail("audio", [table])
    for tail in CHANNELS:
        assert_logits(lm, tail, [table])


@pytest.mark.parametrize("chunk", [1, 5, 512])
@pytest.mark.parametrize("tail", CHANNELS)
def test_a_chunk_bounds_every_pass(
    nano_lm: LanguageModel, monkeypatch: pytest.MonkeyPatch, tail: Channel, chunk: int
) -> None:
    """No pass has more rows than the chunk, and each row is written once."""
    lm = fresh(nano_lm, chunk=chunk)
    passes = watch(monkeypatch, lm.runner.decoder)
    tables = [PageTable(lm.pool) for _ in range(2)]
    for table, name in zip(tables, (PROMPT, OTHER), strict=True):
        lm.runner.reserve(table, prompt_rows(lm, name))
    lm.runner.trunk([(table, 0) for table in tables])
    lm.runner.tail(tail, tables)
    slots = sorted(table.slot(p) for table in tables for p in range(len(table)))
    for name in ("trunk", tail):
        written = [some for which, some in passes if which == name]
        assert sorted(slot for some in written for slot in some) == slots
        assert max(map(len, written)) == min(chunk, len(slots))


@pytest.mark.parametrize("tail", CHANNELS)
def test_logits_of_a_row_computed_before(
    nano_lm: LanguageModel, monkeypatch: pytest.MonkeyPatch, tail: Channel
) -> None:
    """A second call runs one row, writes it to the scratch slot, and gives the same logits."""
    lm = fresh(nano_lm)
    table = prefill(lm, prompt_rows(lm, PROMPT))
    assert_logits(lm, tail, [table])
    before = stored_bits(lm.runner, table)
    passes = watch(monkeypatch, lm.runner.decoder)
    lm.runner.tail_logits(tail, [table])
    assert passes == [(tail, [lm.runner.storage.scratch_slot])]
    assert lm.runner.storage.scratch_slot >= lm.pool.total * lm.pool.page_size
    assert_kept(lm, table, before)
    assert_logits(lm, tail, [table])


@pytest.mark.parametrize("setting", ["greedy", "filtered", "hot, pad"])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_forks_are_independent(switching: LanguageModel, page_size: int, setting: str) -> None:
    """Each fork answers as a new request would, and changes no bit of the shared pages."""
    lm, sampling = fresh(switching, pages=600 // page_size, page_size=page_size), SETTINGS[setting]
    prefix = prompt_rows(lm, OTHER)
    table = prefill(lm, prefix)
    for tail in CHANNELS:
        lm.runner.tail(tail, [table])
    shared = stored_bits(lm.runner, table)
    fork = table.fork()
    histories = [prefix + prompt_rows(lm, "short"), prefix]
    requests = [
        request_on(lm, one, rows, sampling)
        for one, rows in zip((table, fork), histories, strict=True)
    ]
    for _ in range(sampling.max_new):  # alternating
        for request in requests:
            advance(lm, request, 1)
    for request, history in zip(requests, histories, strict=True):
        assert (request.new_rows, request.stop) == answer(fresh(switching), history, sampling)
        assert_kept(lm, request.table, shared)
    for one in (table, fork):
        one.free()
    assert all_free(lm)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(["short", PROMPT, OTHER]),
    setting=st.sampled_from(sorted(SETTINGS)),
    before=st.integers(1, 20),
    heard=st.integers(0, 20),
    page_size=st.integers(1, 9),
)
def test_a_truncated_reply_continues_as_a_new_request(
    switching: LanguageModel, name: str, setting: str, before: int, heard: int, page_size: int
) -> None:
    """After a truncation anywhere in a reply the rows are those of a new prompt, and a fork is
    unchanged."""
    lm, sampling = fresh(switching, pages=300, page_size=page_size), SETTINGS[setting]
    request = request_on(lm, PageTable(lm.pool), prompt_rows(lm, name), sampling)
    advance(lm, request, before)
    uncut = request.table.rows + request.pending
    history = uncut[: len(uncut) - len(request.new_rows) + heard]
    fork = request_on(lm, request.table.fork(), uncut, sampling)
    request.table.truncate(min(len(history), len(request.table)))
    kept = stored_bits(lm.runner, request.table)
    resumed = request_on(lm, request.table, history, sampling)
    untouched = stored_bits(lm.runner, fork.table)
    advance(lm, resumed, sampling.max_new)
    assert (resumed.new_rows, resumed.stop) == answer(fresh(switching), history, sampling)
    assert_kept(lm, resumed.table, kept)
    assert_kept(lm, fork.table, untouched)
    advance(lm, fork, sampling.max_new)
    assert (fork.new_rows, fork.stop) == answer(fresh(switching), uncut, sampling)


@pytest.mark.parametrize("chunk", [512, 5])
@pytest.mark.parametrize("page_size", [1, 4, 64])
def test_a_missing_tail_is_computed_once_for_all_tables_that_share(
    switching: LanguageModel, monkeypatch: pytest.MonkeyPatch, page_size: int, chunk: int
) -> None:
    """Tables that share pages and need a tail in one pass compute each row once, exactly."""
    lm = fresh(switching, pages=-(-512 // page_size), page_size=page_size, chunk=chunk)
    prefix = prompt_rows(lm, OTHER)
    table = prefill(lm, prefix)
    lm.runner.tail("audio", [table])
    fork, idle, short = table.fork(), table.fork(), table.fork()
    short.truncate(len(prefix) // 2)
    extend(lm, table, prompt_rows(lm, "short"))
    extend(lm, fork, prompt_rows(lm, PROMPT))
    passes = watch(monkeypatch, lm.runner.decoder)
    tables = [fork, short, table, idle]
    given_out = lm.runner.tail_logits("text", tables)
    owners: dict[int, PageTable] = {}  # of each slot, the first table that needs it
    for one in tables:
        for position in range(len(one)):
            owners.setdefault(one.slot(position), one)
    written = [slot for _, slots in passes for slot in slots]
    # A last row that another table computes runs again, for its output.
    again = [one for one in tables if owners[one.slot(len(one) - 1)] is not one]
    assert sorted(written) == sorted(owners) + [lm.runner.storage.scratch_slot] * len(again)
    assert short in again
    for one, logits in zip(tables, given_out, strict=True):
        expected = lm.forward(one.rows)[0][-1]
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("chunk", [512, 7])
def test_a_last_row_computed_before_the_rows_under_it(switching: LanguageModel, chunk: int) -> None:
    """If a tail's rows have a gap, the logits are those of the last row, not of the last missing
    one."""
    lm = fresh(switching, page_size=4, chunk=chunk)
    rows = prompt_rows(lm, OTHER)
    equals = [PageTable(lm.pool) for _ in range(2)]
    for each in equals:  # equal rows in one pass: the pages of the first are published
        lm.runner.reserve(each, rows[:40])
    lm.runner.trunk([(each, 0) for each in equals])
    extend(lm, equals[1], rows[40:48])
    lm.runner.tail("text", equals[1:])
    table = PageTable(lm.pool)
    assert table.adopt(rows) == 48
    assert table.missing("text", 99) == list(range(40))
    assert_logits(lm, "text", [table])


@pytest.mark.parametrize("chunk", [512, 30])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_tail_that_failed_is_computed_again_for_all_tables_that_share(
    switching: LanguageModel,
    monkeypatch: pytest.MonkeyPatch,
    order: tuple[int, int],
    chunk: int,
) -> None:
    """After a failed pass no table uses rows that another table had marked as computed."""
    lm = fresh(switching, page_size=4, chunk=chunk)
    table = prefill(lm, prompt_rows(lm, OTHER))
    fork = table.fork()
    extend(lm, fork, prompt_rows(lm, "short"))
    tables = [(table, fork)[index] for index in order]
    break_at(monkeypatch, lm.runner.decoder, "tail", call=1)
    with pytest.raises(RuntimeError, match="tail broke at call 1"):
        lm.runner.tail_logits("text", tables)
    for one in reversed(tables):
        assert_logits(lm, "text", [one])


def test_a_refused_reservation_writes_nothing(nano_lm: LanguageModel) -> None:
    """`OutOfPages` for the copy of a shared page leaves tables and tensors unchanged."""
    lm = fresh(nano_lm, pages=3, page_size=8)
    table = prefill(lm, prompt_rows(lm, PROMPT)[:22])
    fork = table.fork()
    before = stored_bits(lm.runner, table)
    with pytest.raises(OutOfPages, match="1 pages wanted and 0 of 3 free"):
        lm.runner.reserve(fork, [(1, 1)])
    assert (fork.rows, fork.pages) == (table.rows, table.pages)
    assert_kept(lm, fork, before)
    assert_logits(lm, "audio", [table, fork])


some_rows = st.lists(
    st.sampled_from([(1, 64), (2, 64), (403, 64), (424, 5), (424, 64), (424, 500)]),
    min_size=1,
    max_size=9,
)
tails = st.sampled_from(CHANNELS)
kinds: dict[str, st.SearchStrategy[Any]] = {
    "extend": some_rows,
    "open": some_rows,
    "fork": st.none(),
    "truncate": st.integers(0, 99),
    "tail": tails,
    "failing tail": tails,
}
moves = st.sampled_from(sorted(kinds)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.integers(0, 9), kinds[kind])
)


def make_move(
    lm: LanguageModel, tables: list[PageTable], kind: str, index: int, value: Any
) -> None:
    table = tables[index % len(tables)]
    if kind == "extend":
        extend(lm, table, value)
    elif kind == "open":
        tables.append(prefill(lm, table.rows + value))
    elif kind == "fork":
        tables.append(table.fork())
    elif kind == "truncate":
        table.truncate(1 + value % len(table))
    elif kind == "tail":
        lm.runner.tail(value, tables[index % len(tables) :])
    else:
        with pytest.MonkeyPatch.context() as patch, suppress(RuntimeError):
            break_at(patch, lm.runner.decoder, "tail", call=1)
            lm.runner.tail(value, tables)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    plan=st.lists(moves, min_size=3, max_size=14),
    page_size=st.integers(1, 5),
    chunk=st.sampled_from([3, 8, 512]),
)
def test_any_order_of_calls_leaves_logits_exact(
    nano_lm: LanguageModel, plan: list[tuple[str, int, Any]], page_size: int, chunk: int
) -> None:
    """Any order of extend, share, fork, truncate and failure leaves the logits of a fresh pass."""
    lm = fresh(nano_lm, pages=500, page_size=page_size, chunk=chunk)
    tables = [prefill(lm, prompt_rows(lm, "short"))]
    for move in plan:
        make_move(lm, tables, *move)
    for tail in CHANNELS:
        assert_logits(lm, tail, tables)
    for table in tables:
        table.free()
    assert all_free(lm)
