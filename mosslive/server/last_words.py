"""The end of a process whose device is lost: clients are told, one line says why, and it exits.

Only a new process can use the device again, so whoever runs this one must see it end, soon and in
any case: it exits without cleaning up, because a call to a lost device may never return. Called on
the thread of the part that failed. Knows neither the part nor the device.
"""

import asyncio
import logging
import os
import threading
from contextlib import suppress
from functools import partial

from mosslive.server.server_state import DEVICE_LOST, ServerState

EXIT_STATUS = 70  # EX_SOFTWARE of sysexits.h
_TELL_S = 2.0  # for sessions to send what they have, and to close
_MOST_S = 3.0  # in all, even if the event loop hangs
_log = logging.getLogger("mosslive.server")


def end_process(
    server_state: ServerState, loop: asyncio.AbstractEventLoop, reason: str
) -> threading.Thread:
    """Returns at once; the thread that it starts ends the process."""
    server_state.end_reason = DEVICE_LOST  # before any conversation learns of it
    thread = threading.Thread(
        target=_end, args=(server_state, loop, reason), name="mosslive-end", daemon=True
    )
    thread.start()
    return thread


def _end(server_state: ServerState, loop: asyncio.AbstractEventLoop, reason: str) -> None:
    told = threading.Event()
    with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
        loop.call_soon_threadsafe(partial(_start_telling, server_state, told))
        told.wait(_MOST_S)
    # The last line. The first line of the error is enough: the log has all of it.
    _log.critical("the device is lost and the process ends: %s", reason.splitlines()[0])
    logging.shutdown()
    os._exit(EXIT_STATUS)


def _start_telling(server_state: ServerState, told: threading.Event) -> None:
    task = asyncio.get_running_loop().create_task(_tell(server_state))
    task.add_done_callback(lambda _: told.set())
    server_state.telling = task  # an event loop keeps no reference of its own


async def _tell(server_state: ServerState) -> None:
    """All replies fail by themselves, as their part has ended; then sessions have nothing to do."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_TELL_S):
            await server_state.drain(_TELL_S / 2)
            await server_state.slots.emptied()
            await server_state.requests.emptied()
