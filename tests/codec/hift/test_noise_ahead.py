"""Noise drawn ahead is the noise that would have been drawn.

A seed gives the same sound whether or not the windows are as long as expected.
"""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mosslive.codec.hift.noise_ahead import Drawn, draw_ahead, take


def draw(frames: int, generator: torch.Generator) -> Tensor:
    torch.rand(3, generator=generator)
    return torch.randn(frames, 5, generator=generator)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=6), st.integers(0, 99))
def test_as_if_drawn_when_taken(windows: list[tuple[int, int]], seed: int) -> None:
    plain, ahead = (torch.Generator().manual_seed(seed) for _ in range(2))
    for frames, expected in windows:
        drawn: Drawn | None = None
        if expected:
            before = ahead.get_state()
            drawn = draw_ahead(draw, expected, ahead)
            assert torch.equal(ahead.get_state(), before)
        assert torch.equal(take(drawn, draw, frames, ahead), draw(frames, plain))
        assert torch.equal(ahead.get_state(), plain.get_state())


def test_a_generator_that_has_moved_on() -> None:
    """Two streams may share a generator: each gets its own noise, and no state is reset."""
    plain, shared = (torch.Generator().manual_seed(3) for _ in range(2))
    drawn = [draw_ahead(draw, 4, shared) for _ in range(2)]
    for each in drawn:
        assert torch.equal(take(each, draw, 4, shared), draw(4, plain))
    assert torch.equal(shared.get_state(), plain.get_state())


def test_without_a_thread_it_is_drawn_when_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert draw_ahead(draw, 4, torch.Generator()) is None


def test_take_raises_the_error_of_the_thread() -> None:
    def broken(frames: int, generator: torch.Generator) -> Tensor:
        raise MemoryError

    generator = torch.Generator()
    with pytest.raises(MemoryError):
        take(draw_ahead(broken, 2, generator), broken, 2, generator)
