"""Page tables: sharing, forking, truncating and what each tail has computed, case by case."""

from collections.abc import Callable

import pytest

from mosslive.cache import OutOfPages, PageCopy, PagePool, PageTable
from mosslive.rows import CHANNELS, Channel, Row


def rows_of(letters: str) -> list[Row]:
    """One row per letter: short to write, easy to compare."""
    return [(ord(letter), 0) for letter in letters]


def filled(pool: PagePool, letters: str) -> PageTable:
    """A table whose rows are computed by the trunk and published, as a runner leaves it."""
    table = PageTable(pool)
    assert table.append(rows_of(letters)) == []
    table.publish()
    return table


def adopted(pool: PagePool, letters: str) -> PageTable:
    table = PageTable(pool)
    table.adopt(rows_of(letters))
    return table


def compute(table: PageTable, tail: Channel, most: int = 100) -> list[int]:
    positions = table.missing(tail, most)
    table.mark(tail, positions)
    return positions


def test_rows_fill_pages_in_order() -> None:
    """Row i is in pages[i // size] at offset i % size, and no page is taken before it is needed."""
    pool = PagePool(4, 2)
    pool.take(1)  # so that page numbers and indices differ
    table = PageTable(pool)
    for length, held in ((1, 1), (2, 1), (3, 2), (4, 2), (5, 3)):
        assert table.append(rows_of("a")) == []
        assert (len(table), len(table.pages)) == (length, held)
    assert table.pages == [1, 2, 3]
    assert [table.slot(position) for position in range(5)] == [2, 3, 4, 5, 6]


def test_appending_nothing_changes_nothing() -> None:
    """An empty append does not even unpublish a truncated page."""
    pool = PagePool(2, 2)
    table = filled(pool, "ab")
    table.truncate(1)
    assert table.append([]) == []
    assert adopted(pool, "abc").pages == table.pages


@pytest.mark.parametrize(
    ("letters", "shared"),
    [("abcd", 2), ("abcde", 4), ("ab", 0), ("a", 0), ("abxd", 2), ("xbcd", 0)],
)
def test_adopting_shares_whole_pages_and_leaves_the_last_row(letters: str, shared: int) -> None:
    """Tables share the equal prefix, in whole pages, without the last row."""
    pool = PagePool(4, 2)
    owner = filled(pool, "abcdef")
    table = PageTable(pool)
    assert table.adopt(rows_of(letters)) == shared == len(table)
    assert table.pages == owner.pages[: shared // 2]
    assert table.rows == rows_of(letters)[:shared]
    assert [pool.references[page] for page in owner.pages] == [1 + (shared > n) for n in (0, 2, 4)]


def test_unpublished_pages_are_not_adopted() -> None:
    """Rows the trunk has not computed must not be found."""
    pool = PagePool(4, 1)
    PageTable(pool).append(rows_of("ab"))
    assert PageTable(pool).adopt(rows_of("abc")) == 0


def test_a_conversation_is_found_after_it_ended() -> None:
    """Earlier turns survive their table, and a table that adopts them holds them again."""
    pool = PagePool(3, 2)
    owner = filled(pool, "abcd")
    pages = owner.pages[:]
    owner.free()
    assert pool.free == 3
    table = adopted(pool, "abcde")
    assert (table.pages, pool.free) == (pages, 1)


def test_the_beginning_of_a_conversation_is_forgotten_last() -> None:
    """When pages run short the last ones are reused first: a system prompt outlives later turns."""
    pool = PagePool(3, 2)
    filled(pool, "abcdef").free()
    pool.take(1)
    assert adopted(pool, "abcdef!").rows == rows_of("abcd")


def test_equal_tables_share_what_follows() -> None:
    """Two tables that computed the same rows apart: later rows of either are found by content."""
    pool = PagePool(6, 2)
    first, second = filled(pool, "ab"), filled(pool, "ab")
    assert first.pages != second.pages
    second.append(rows_of("cd"))
    second.publish()
    assert adopted(pool, "abcd!").pages == [first.pages[0], second.pages[1]]


def test_writing_after_a_truncation_unpublishes_the_page() -> None:
    """A truncated page can still be found by its later rows; writing there must end that."""
    pool = PagePool(3, 2)
    table = filled(pool, "abcd")
    for tail in CHANNELS:
        assert compute(table, tail) == [0, 1, 2, 3]
    table.truncate(3)
    assert table.missing("text", 9) == []
    assert table.append(rows_of("x")) == []
    assert table.missing("text", 9) == table.missing("audio", 9) == [3]
    assert adopted(pool, "abcd!").rows == rows_of("ab")
    table.publish()
    assert adopted(pool, "abxd!").rows == rows_of("ab")
    assert adopted(pool, "abcx!").rows == rows_of("abcx")


def test_truncating_at_a_page_border_keeps_the_page_published() -> None:
    """A full page is not written by what comes after it."""
    pool = PagePool(4, 2)
    table = filled(pool, "abcd")
    table.truncate(2)
    table.append(rows_of("xy"))
    table.publish()
    assert adopted(pool, "abxy!").pages == table.pages


def test_a_page_found_by_content_is_not_written_by_its_owner() -> None:
    """After a truncation the owner writes into a copy while another table reads the page."""
    pool = PagePool(3, 2)
    owner = filled(pool, "ab")
    reader = adopted(pool, "ab!")
    shared = owner.pages[0]
    owner.truncate(1)
    (copy,) = owner.append(rows_of("x"))
    assert copy == PageCopy(shared, owner.pages[0], 1)
    assert reader.pages == [shared] != owner.pages
    assert adopted(pool, "ab!").pages == [shared]


def test_of_two_forks_the_first_writer_copies_and_the_second_writes_in_place() -> None:
    """Copy on write: nothing is copied before a write, and never more than once."""
    pool = PagePool(4, 4)
    table = filled(pool, "abcdef")
    fork = table.fork()
    shared = table.pages[1]
    assert (fork.pages, fork.rows, pool.free) == (table.pages, table.rows, 2)
    assert fork.append(rows_of("x")) == [PageCopy(shared, fork.pages[1], 2)]
    assert table.append(rows_of("y")) == []
    assert (table.pages[1], table.pages[0]) == (shared, fork.pages[0])
    assert [pool.references[page] for page in (*table.pages, fork.pages[1])] == [2, 1, 1]


@pytest.mark.parametrize(("done", "kept", "carried"), [(6, 6, 6), (5, 6, 5), (4, 6, 4), (6, 5, 5)])
def test_a_copy_carries_the_tails_of_the_rows_it_copies(done: int, kept: int, carried: int) -> None:
    """What a tail has computed is copied with the rows, neither more nor less."""
    pool = PagePool(5, 4)
    table = filled(pool, "abcdef")
    compute(table, "audio", done)
    fork = table.fork()
    fork.truncate(kept)
    fork.append(rows_of("xyz"))
    assert fork.missing("audio", 9) == list(range(carried, kept + 3))
    assert table.missing("audio", 9) == list(range(done, 6))


def test_a_fork_at_a_page_border_copies_nothing() -> None:
    """Full pages stay shared."""
    pool = PagePool(4, 2)
    table = filled(pool, "abcd")
    fork = table.fork()
    assert fork.append(rows_of("x")) == table.append(rows_of("y")) == []
    assert fork.pages[:2] == table.pages[:2]
    assert fork.pages[2] != table.pages[2]


@pytest.mark.parametrize(("letters", "wanted"), [("x", 1), ("xyz", 2)])
def test_a_fork_without_a_page_for_its_copy_is_refused(letters: str, wanted: int) -> None:
    """The page of the copy counts, and a failed append changes nothing."""
    pool = PagePool(2, 4)
    table = filled(pool, "abcdef")
    fork = table.fork()
    with pytest.raises(OutOfPages, match=f"^{wanted} pages wanted and 0 of 2 free"):
        fork.append(rows_of(letters))
    assert (fork.rows, fork.pages) == (rows_of("abcdef"), table.pages)
    assert pool.references == [2, 2]


def test_shared_pages_stay_when_one_of_two_lets_go() -> None:
    """Truncating or freeing one table takes nothing from the other."""
    pool = PagePool(3, 2)
    table = filled(pool, "abcdef")
    fork = table.fork()
    fork.truncate(1)
    assert pool.free == 0
    fork.free()
    assert (pool.free, fork.pages, fork.rows) == (0, [], [])
    table.free()
    assert pool.free == 3


def test_a_freed_table_may_be_used_again() -> None:
    """`free` leaves an empty table without tail marks."""
    pool = PagePool(2, 2)
    table = filled(pool, "abc")
    compute(table, "text")
    table.free()
    table.append(rows_of("xyz"))
    assert (len(table), table.missing("text", 9)) == (3, [0, 1, 2])


def test_missing_is_asked_in_portions() -> None:
    """`missing` returns at most the given number of rows, the earliest first."""
    table = filled(PagePool(4, 2), "abcdefg")
    assert compute(table, "text", 3) == [0, 1, 2]
    assert compute(table, "text", 3) == [3, 4, 5]
    assert table.missing("text", 0) == []
    assert compute(table, "text", 3) == [6]
    assert table.missing("text", 3) == []
    assert table.missing("audio", 9) == list(range(7))


def test_missing_rows_need_not_be_adjacent() -> None:
    """Adopted pages of different owners can leave a hole between pages a tail has computed."""
    pool = PagePool(8, 2)
    first, second = filled(pool, "abcd"), filled(pool, "abcd")
    second.append(rows_of("ef"))
    second.publish()
    compute(second, "text")
    compute(first, "text", 2)
    table = adopted(pool, "abcdef!")
    assert table.pages == [*first.pages, second.pages[2]]
    table.append(rows_of("g"))
    assert table.missing("text", 9) == [2, 3, 6]
    assert compute(table, "text", 1) == [2]
    assert compute(table, "text") == [3, 6]
    assert first.missing("text", 9) == []


def test_tables_on_one_page_compute_each_row_once() -> None:
    """What one table has marked the other does not compute again, whichever is longer."""
    pool = PagePool(4, 4)
    table = filled(pool, "abcdef")
    short = table.fork()
    short.truncate(5)
    assert compute(short, "text") == [0, 1, 2, 3, 4]
    assert compute(table, "text") == [5]
    assert short.missing("text", 9) == []


@pytest.mark.parametrize("forget", [0, 3, 5])
def test_a_failed_computation_is_missing_again(forget: int) -> None:
    """`unmark` takes back exactly the rows it names."""
    table = filled(PagePool(4, 2), "abcdef")
    compute(table, "text")
    assert table.missing("text", 9) == []
    table.unmark("text", list(range(forget, 6)))
    assert table.missing("text", 9) == list(range(forget, 6))


def test_a_failed_computation_is_missing_for_the_other_table_too() -> None:
    """`unmark` is seen by tables that had taken the rows as done."""
    pool = PagePool(4, 2)
    table = filled(pool, "abcd")
    fork = table.fork()
    claimed = compute(table, "text")
    assert fork.missing("text", 9) == []
    table.unmark("text", claimed)
    for one in (fork.fork(), fork):
        assert one.missing("text", 9) == [0, 1, 2, 3]


def test_a_page_published_again_by_a_fork_is_not_taken_for_what_it_held() -> None:
    """A second node of one prefix must not lead to a page that now holds other rows."""
    pool = PagePool(4, 1)
    first = filled(pool, "x")
    table = PageTable(pool)
    table.append(rows_of("xy"))
    fork = table.fork()
    table.publish()  # "y" is known after the "x" of first
    first.free()
    other = filled(pool, "pq")  # takes the page of first
    fork.publish()  # "x" is known anew, and "y" after that
    fork.free()
    table.truncate(1)
    filled(pool, "r")  # takes the page of "y"
    other.free()
    for letter in "yz":
        table.append(rows_of(letter))
        table.publish()
    assert adopted(pool, "rz!").rows == rows_of("r")


def _truncate(table: PageTable) -> None:
    table.truncate(4)


def _truncate_below(table: PageTable) -> None:
    table.truncate(-1)


def _adopt(table: PageTable) -> None:
    table.adopt(rows_of("abc"))


def _mark(table: PageTable) -> None:
    table.mark("text", [1])


@pytest.mark.parametrize(
    ("misuse", "error", "message"),
    [
        (_truncate, ValueError, r"truncate to 4 rows; allowed: 0\.\.3"),
        (_truncate_below, ValueError, r"truncate to -1 rows; allowed: 0\.\.3"),
        (_adopt, AssertionError, "only an empty table can adopt"),
        (_mark, AssertionError, "tails are computed in order"),
    ],
)
def test_misuse_is_named_and_changes_nothing(
    misuse: Callable[[PageTable], None], error: type[Exception], message: str
) -> None:
    """A wrong call says what was wrong and leaves table and pool as they were."""
    pool = PagePool(2, 2)
    table = filled(pool, "abc")
    with pytest.raises(error, match=message):
        misuse(table)
    assert (table.rows, len(table.pages), pool.free) == (rows_of("abc"), 2, 0)
    assert table.missing("text", 9) == [0, 1, 2]
