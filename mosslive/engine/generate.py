"""The plain generation loop: every request gets one row per step, until it stops.

This is the definition any faster engine must equal. It knows neither deadlines nor priorities.
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
    """(request number, new row), in lockstep. A request that finds no page ends with stop "pages"
    and hurts no other; any other error ends the batch. However this ends, every page is given
    back."""
    try:
        running = list(enumerate(requests))
        while running:
            _refuse_without_pages([request for _, request in running])
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


def _refuse_without_pages(requests: list[Request]) -> None:
    """Ends those for whose rows no page is left, in order: what they held serves the ones after."""
    promised = 0
    for request in requests:
        table, pool = request.table, request.table.pool
        request.adopt()
        wanted, free = table.pages_for(len(request.waiting)), pool.free - promised
        if wanted > free:
            request.stop = "pages"
            request.refusal = OutOfPages(wanted, free, pool.total, pool.page_size)
            table.free()
        else:
            promised += wanted
