"""Draws a stream's noise ahead of time, on a thread of its own.

Drawing noise on a CPU takes an eighth of the time of a chunk, and depends only on the length of the
chunk, which is usually that of the one before. Knows neither windows nor the use of the noise.
Invariant: the noise, and the state of the generator afterwards, are as if it were drawn when it is
taken, also if something else has drawn from the generator since.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import torch
from torch import Tensor

Draw = Callable[[int, torch.Generator], Tensor]  # a length and a generator, which moves on


@dataclass(frozen=True, eq=False)
class Drawn:
    """Noise of `frames` frames, the generator's state before it, and a generator that is in the
    state after it."""

    frames: int
    stood: Tensor
    noise: Future[Tensor]
    generator: torch.Generator


def draw_ahead(draw: Draw, frames: int, generator: torch.Generator) -> Drawn | None:
    """Does not change the generator. Returns None if no thread can be started."""
    own, noise = generator.clone_state(), Future[Tensor]()

    def work() -> None:
        try:
            noise.set_result(draw(frames, own))
        except BaseException as error:  # `take` raises it
            noise.set_exception(error)

    # One thread per draw: it ends by itself and needs no cleanup with the codec.
    thread = threading.Thread(target=work, name="mosslive-noise", daemon=True)
    stood = generator.get_state()
    try:
        thread.start()
    except RuntimeError:
        return None
    return Drawn(frames, stood, noise, own)


def take(drawn: Drawn | None, draw: Draw, frames: int, generator: torch.Generator) -> Tensor:
    if (
        drawn is None
        or drawn.frames != frames
        or not torch.equal(drawn.stood, generator.get_state())
    ):
        return draw(frames, generator)
    noise = drawn.noise.result()
    generator.set_state(drawn.generator.get_state())
    return noise
