"""How many rows one conversation may hold, so that all that may be open at once find pages.

Pure functions of the pool and the number of conversations; the only place where this is computed.
Each conversation is granted the same pages. Of these, a reply being made needs its headroom, and a
page more is needed where rows are written after a shared, half-filled page. The rest holds rows.
"""

from mosslive.cache import PagePool
from mosslive.engine.scheduler import headroom_pages
from mosslive.engine.settings import EngineSettings

# A system turn, a question and an answer of several seconds each.
LEAST_ROWS = 256


def overhead_pages(page_size: int, settings: EngineSettings) -> int:
    """Pages of a conversation beyond those of its rows."""
    return headroom_pages(1, page_size, settings) + 1


def rows_each(pool: PagePool, conversations: int, settings: EngineSettings) -> int:
    """Rows that each of so many conversations may hold; 0 if there are too many of them."""
    pages = pool.total // conversations - overhead_pages(pool.page_size, settings)
    return max(0, pages) * pool.page_size


def most_conversations(pool: PagePool, rows: int, settings: EngineSettings) -> int:
    """How many conversations of so many rows the pool holds; 0 if not even one."""
    pages = -(-rows // pool.page_size) + overhead_pages(pool.page_size, settings)
    return pool.total // pages


def rows_for(conversations: int, rows: int, page_size: int, settings: EngineSettings) -> int:
    """Rows of a pool that holds so many conversations of so many rows."""
    pages = -(-rows // page_size) + overhead_pages(page_size, settings)
    return conversations * pages * page_size
