"""A function as a CUDA graph: on a CPU the function itself, on a GPU captured on a side stream."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mosslive.kernels.graph import Graphed, GraphRecorder


def test_on_a_cpu_it_is_the_function() -> None:
    """Without a GPU a call runs the function, also with other shapes."""
    double = Graphed(lambda x: 2 * x, torch.ones(3))
    assert torch.equal(double(torch.ones(4)), torch.full((4,), 2.0))


@pytest.mark.parametrize("priority", [0, -1])
def test_it_is_recorded_at_the_priority_of_the_stream_in_use(
    monkeypatch: pytest.MonkeyPatch, priority: int
) -> None:
    """The warm-up and the capture use one stream of that priority, which the graph keeps."""
    log: list[tuple[str, Any]] = []

    class Stream(SimpleNamespace):
        def wait_stream(self, other: Any) -> None:
            log.append(("wait", (self.name, other.name)))

    def side(_: torch.device | None, priority: int) -> Stream:
        return Stream(name="side", priority=priority)

    @contextmanager
    def recorded(_: Any, *, pool: str, stream: Stream, capture_error_mode: str) -> Iterator[None]:
        log.append(("record", (pool, stream.name, stream.priority, capture_error_mode)))
        yield

    current = Stream(name="current", priority=priority)
    monkeypatch.setattr(Graphed, "_on_device", lambda _: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _=None: current)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "Stream", side)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", recorded)
    calls: list[int] = []
    Graphed(lambda x: calls.append(len(x)), torch.ones(3))
    assert log == [
        ("wait", ("side", "current")),
        ("wait", ("current", "side")),
        ("record", ("pool", "side", priority, "thread_local")),
    ]
    assert calls == [3] * 3  # two runs for warm-up, then the capture
    done: list[int] = []
    recorder = GraphRecorder(progress=done.append)
    results = [recorder.record(str)[1] for _ in range(2)]
    assert results == ["", ""]
    assert done == [1, 2]
    assert log[-1] == ("record", ("pool", "side", priority, "thread_local")), "one shared pool"
