"""Progress bars of downloads that Ctrl-C ends at once.

`huggingface_hub` downloads on worker threads and waits for them before it raises, which can take as
long as the download itself. Its bars are told about every chunk on those threads, so a bar that
raises there ends them. Draws nothing itself: the bars are the library's.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def stoppable() -> Iterator[type[Any]]:
    """Yields a class of bars for `snapshot_download`. On the main thread, while the context is
    open, Ctrl-C stops all downloads at their next chunk and raises KeyboardInterrupt; a second one
    ends the process."""
    from huggingface_hub.utils.tqdm import tqdm

    stopped = threading.Event()

    class Bar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            shown = {"disable": None, **options, "leave": False}  # None: on a terminal only
            super().__init__(*args, **shown)  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> Any:
            if stopped.is_set():
                raise Stopped
            return super().update(n)

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():  # a thread outside Python may go on: do not wait for it again
            os._exit(130)
        stopped.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield Bar
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield Bar
    except Stopped:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, before)


class Stopped(Exception):
    """Ends a worker thread of a download that was interrupted."""
