"""How a server's threads share the interpreter."""

import gc
import sys

from mosslive.talk.host_threads import collecting_later_objects, short_thread_switches


def test_loaded_objects_are_not_collected_again() -> None:
    """After loading, a full collection looks only at objects that were made later."""
    loaded = [[]]  # type: ignore[var-annotated]
    with collecting_later_objects():
        assert not any(one is loaded for one in gc.get_objects())
    assert any(one is loaded for one in gc.get_objects())


def test_short_switches_end_with_the_server() -> None:
    """The interval of the process is restored."""
    before = sys.getswitchinterval()
    with short_thread_switches():
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before
