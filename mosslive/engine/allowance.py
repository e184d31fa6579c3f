"""How many rows each conversation may hold, if a given number of them must fit into the pool.

Pure functions of the pool and the number of conversations; nothing else computes this. Each
conversation gets the same number of pages. Of these, the headroom is for an active reply, and one
page is for the copy that is made before rows are written after a shared, partly filled page. The
other pages hold rows.
"""

from mosslive.cache import PagePool
from mosslive.engine.scheduler import headroom_pages
from mosslive.engine.settings import EngineSettings

# Enough for a system turn, a question and an answer of several seconds each.
LEAST_ROWS = 256


def overhead_pages(page_size: int, settings: EngineSettings) -> int:
    """Returns the pages of a conversation that do not hold its rows."""
    return headroom_pages(1, page_size, settings) + 1


def rows_each(pool: PagePool, conversations: int, settings: EngineSettings) -> int:
    """Returns the rows that each of `conversations` may hold; 0 if there are too many of them."""
    pages = pool.total // conversations - overhead_pages(pool.page_size, settings)
    return max(0, pages) * pool.page_size


def most_conversations(pool: PagePool, rows: int, settings: EngineSettings) -> int:
    """Returns how many conversations of `rows` rows the pool holds; 0 if it holds none."""
    pages = -(-rows // pool.page_size) + overhead_pages(pool.page_size, settings)
    return pool.total // pages


def rows_for(conversations: int, rows: int, page_size: int, settings: EngineSettings) -> int:
    """Returns the rows of a pool that holds `conversations` of `rows` rows each."""
    pages = -(-rows // page_size) + overhead_pages(page_size, settings)
    return conversations * pages * page_size
