"""How the threads of a server share the Python interpreter.

The engine's and the codec's thread start work on the device and must not wait for an event loop
that serves many connections. Applies to the whole process, so only its owner calls it.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH_S = 0.0005  # Python's default, 5 ms, is longer than a step of the language model


@contextmanager
def short_thread_switches() -> Iterator[None]:
    """Inside, a thread that waits for the interpreter gets it after half a millisecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def collecting_later_objects() -> Iterator[None]:
    """Inside, the garbage collector looks only at objects made since then. A full collection stops
    all threads; for the modules alone it takes longer than a row plays."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()  # extension modules report what is not collected at exit
