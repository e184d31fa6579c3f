"""The page pool alone: which page is allocated, and what a free page can be found by."""

import pytest

from mosslive.cache import OutOfPages, PagePool
from mosslive.cache.pool import ROOT
from mosslive.errors import MossliveError
from mosslive.rows import CHANNELS, Row

A: list[Row] = [(1, 0), (2, 0)]
B: list[Row] = [(3, 0), (4, 0)]


def test_pages_are_reused_longest_unused_first() -> None:
    """Least recently used: the page released first is taken first."""
    pool = PagePool(3, 2)
    assert pool.take(3) == [0, 1, 2]
    for page in (1, 0, 2):
        pool.release(page)
    assert pool.take(2) == [1, 0]
    assert pool.take(1) == [2]


def test_take_is_all_or_nothing() -> None:
    """`OutOfPages` has the numbers, says what to do, and no page is taken."""
    pool = PagePool(4, 16)
    pool.take(1)
    with pytest.raises(
        OutOfPages, match=r"^5 pages wanted and 3 of 4 free \(16 rows each\); "
    ) as e:
        pool.take(5)
    assert (e.value.wanted, e.value.free, e.value.total) == (5, 3, 4)
    assert "kv_rows" in str(e.value)
    assert isinstance(e.value, MossliveError)
    assert (pool.free, pool.references) == (3, [1, 0, 0, 0])
    assert pool.take(3) == [1, 2, 3]


def test_taking_nothing_is_possible_when_nothing_is_free() -> None:
    """A full pool still serves a table with free rows in its last page."""
    pool = PagePool(1, 1)
    pool.take(1)
    assert pool.take(0) == []


def test_a_page_is_free_after_its_last_holder() -> None:
    """A page is free exactly when its reference count is 0."""
    pool = PagePool(2, 1)
    (page,) = pool.take(1)
    pool.hold(page)
    pool.release(page)
    assert (pool.references[page], pool.free) == (1, 1)
    pool.release(page)
    assert (pool.references[page], pool.free) == (0, 2)


def test_content_is_found_after_its_owner_left() -> None:
    """A free page keeps its content, and comes back into use when it is held again."""
    pool = PagePool(2, 2)
    (page,) = pool.take(1)
    node = pool.publish(page, ROOT, A)
    pool.tail_rows["audio"][page] = 2
    pool.release(page)
    assert pool.find(ROOT, A) == (page, node)
    pool.hold(page)
    assert (pool.free, pool.references[page], pool.tail_rows["audio"][page]) == (1, 1, 2)
    assert pool.take(1) != [page]


def test_a_taken_page_is_empty() -> None:
    """A newly taken page inherits neither content nor tail marks."""
    pool = PagePool(1, 2)
    pool.take(1)
    pool.publish(0, ROOT, A)
    for tail in CHANNELS:
        pool.tail_rows[tail][0] = 2
    pool.release(0)
    pool.take(1)
    assert pool.find(ROOT, A) is None
    assert [pool.tail_rows[tail][0] for tail in CHANNELS] == [0, 0]


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_overwriting_keeps_marks_of_the_rows_before(kept: int) -> None:
    """Rows before the first one that changes keep their tails; the page can no longer be found."""
    pool = PagePool(1, 2)
    pool.take(1)
    pool.publish(0, ROOT, A)
    pool.tail_rows["text"][0] = 1
    pool.overwrite(0, kept)
    assert pool.find(ROOT, A) is None
    assert pool.tail_rows["text"][0] == min(1, kept)


def test_equal_content_twice_has_one_node_and_one_page() -> None:
    """Two pages with equal content share one node, and `find` returns the first page."""
    pool = PagePool(3, 2)
    first, second, child = pool.take(3)
    node = pool.publish(first, ROOT, A)
    assert pool.publish(second, ROOT, A) == node
    below = pool.publish(child, node, B)
    assert pool.find(ROOT, A) == (first, node)
    assert pool.find(node, B) == (child, below)
    pool.overwrite(second, 0)
    assert pool.find(ROOT, A) == (first, node)


def test_content_includes_the_past() -> None:
    """Equal rows after different prefixes are different content: their keys differ."""
    pool = PagePool(3, 2)
    first, other, child = pool.take(3)
    node_a, node_b = pool.publish(first, ROOT, A), pool.publish(other, ROOT, B)
    pool.publish(child, node_a, B)
    assert node_a != node_b
    assert pool.find(node_b, B) is None
    assert pool.find(ROOT, B) == (other, node_b)


def test_a_node_never_means_something_else() -> None:
    """After its page was overwritten a node is not given to new content."""
    pool = PagePool(2, 2)
    page, child = pool.take(2)
    old = pool.publish(page, ROOT, A)
    pool.publish(child, old, A)
    pool.overwrite(page, 0)
    new = pool.publish(page, ROOT, B)
    assert new != old
    assert pool.find(new, A) is None


def test_a_page_published_under_two_pasts_is_forgotten_under_both() -> None:
    """Two tables can know one prefix by two nodes; overwriting removes the page under each."""
    pool = PagePool(2, 2)
    pool.take(2)
    # Node 8 and node 9 stand for the same past, published by two equal tables at different times.
    for parent in (8, 9):
        pool.publish(1, parent, A)
    pool.release(1)
    pool.take(1)
    assert [pool.find(parent, A) for parent in (8, 9)] == [None, None]


@pytest.mark.parametrize(("pages", "size"), [(0, 1), (1, 0), (-1, 16)])
def test_an_impossible_pool_is_refused(pages: int, size: int) -> None:
    """The message names both numbers and what is allowed."""
    with pytest.raises(ValueError, match=f"{pages} pages of {size} rows; allowed: 1 or more"):
        PagePool(pages, size)


def test_releasing_too_often_is_caught() -> None:
    """A page freed twice would be given to two conversations."""
    pool = PagePool(1, 1)
    pool.take(1)
    pool.release(0)
    with pytest.raises(AssertionError, match="page 0 released more often than held"):
        pool.release(0)
    assert pool.free == 1


def test_only_full_and_held_pages_are_published() -> None:
    """A partly filled or a free page cannot be published."""
    pool = PagePool(1, 2)
    with pytest.raises(AssertionError, match="only held pages"):
        pool.publish(0, ROOT, A)
    pool.take(1)
    with pytest.raises(AssertionError, match="only full pages"):
        pool.publish(0, ROOT, A[:1])
    assert pool.find(ROOT, A) is None
