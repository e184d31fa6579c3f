"""The plain generation loop: every request gets one row per step, until it stops.

This loop is the definition: the served engine must make the same rows. It knows neither deadlines
nor priorities, and it runs on the caller's thread.
"""

from collections.abc import Generator

from mosslive.cache import OutOfPages
from mosslive.engine.request import Request
from mosslive.engine.stepper import Stepper
from mosslive.errors import MossliveError
from mosslive.rows import Row


def generate_rows(
    stepper: Stepper, requests: list[Request]
) -> Generator[tuple[int, Row], None, None]:
    """Yields (request number, new row), in lockstep. A request without a free page ends with stop
    "pages", and the others continue. Any other error ends the batch. All pages are freed at the
    end, also after an error."""
    try:
        running = list(enumerate(requests))
        while running:
            _stop_without_pages([request for _, request in running])
            running = [(n, request) for n, request in running if not request.stop]
            made = stepper.decode([request for _, request in running])
            for (number, request), row in zip(running, made, strict=True):
                if isinstance(row, MossliveError):
                    raise row
                if request.stop:
                    request.table.free()
                yield number, row
            running = [(n, request) for n, request in running if not request.stop]
    finally:
        for request in requests:
            stepper.release(request)
            request.table.free()


def _stop_without_pages(requests: list[Request]) -> None:
    """Stops the requests for whose rows no page is free, in order. Requests later in the list can
    use the pages of those stopped before them."""
    reserved = 0
    for request in requests:
        table, pool = request.table, request.table.pool
        request.adopt()
        wanted, free = table.pages_for(len(request.pending)), pool.free - reserved
        if wanted > free:
            request.stop = "pages"
            request.refusal = OutOfPages(wanted, free, pool.total, pool.page_size)
            table.free()
        else:
            reserved += wanted
