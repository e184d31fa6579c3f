"""How many pages an append will take, computed before it; the engine's admission depends on it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.cache import PagePool, PageTable

moves = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 5), st.integers(0, 9)),
    st.tuples(st.just("fork"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("truncate"), st.integers(0, 5), st.integers(0, 30)),
    st.tuples(st.just("adopt"), st.integers(0, 5), st.just(0)),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(plan=st.lists(moves, min_size=5, max_size=40), page_size=st.integers(1, 5))
def test_an_append_takes_the_predicted_pages(
    plan: list[tuple[str, int, int]], page_size: int
) -> None:
    """`pages_for` is exact whatever is shared; one page more only if `may_share_last`."""
    pool = PagePool(2000, page_size)
    tables = [PageTable(pool)]
    alone: dict[int, int] = {}  # length of each table whose last page cannot become shared
    for kind, number, value in plan:
        index = number % len(tables)
        table = tables[index]
        if kind == "append":
            wanted, free = table.pages_for(value), pool.free
            if value and alone.get(index) == len(table):
                assert wanted == -(-(len(table) + value) // page_size) - len(table.pages)
            table.append([(1, 1)] * value)
            assert free - pool.free == wanted
            table.publish()
        elif kind == "fork":
            tables.append(table.fork())
            alone.pop(index, None)
            continue
        elif kind == "truncate":
            table.truncate(min(value, len(table)))
        else:
            tables.append(PageTable(pool))
            tables[-1].adopt(table.rows)
            continue
        alone.pop(index, None)
        if not table.may_share_last:
            alone[index] = len(table)
