"""Pages of keys and values: allocation, sharing, truncation, and the tensors behind them."""

from mosslive.cache.pool import OutOfPages, PagePool
from mosslive.cache.storage import PageStorage, row_bytes
from mosslive.cache.table import PageCopy, PageTable

__all__ = ["OutOfPages", "PageCopy", "PagePool", "PageStorage", "PageTable", "row_bytes"]
