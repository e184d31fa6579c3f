"""Replies of many conversations rendered in common steps.

Each brings codes and is told when all the sound they settle is made. One step moves every reply of
a batch that can move; how urgent it is, the reply that runs dry first decides. Runs on the codec's
thread. Knows nothing of conversations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mosslive.engine.health import Health
from mosslive.errors import MossliveError
from mosslive.talk.job_queue import Done, LiveReply, settle
from mosslive.talk.speech_codec import DecoderBatchLike, Samples


@dataclass(eq=False)
class _Rendering:
    """Codes given to a batch that have not all come back as sound."""

    batch: DecoderBatchLike
    due: float
    answer: LiveReply
    pieces: list[Samples] = field(default_factory=list)
    cost_s: float = 0.0


class RenderBatcher:
    def __init__(self, clock: Callable[[], float], health: Health) -> None:
        self._clock, self._health = clock, health
        self._waiting: dict[Any, _Rendering] = {}  # by the batch's reply

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def due(self) -> float:
        """When the first of those who wait runs dry."""
        return min((one.due for one in self._waiting.values()), default=float("inf"))

    def begin(
        self,
        batch: DecoderBatchLike,
        reply: Any,
        codes: Sequence[int],
        due: float,
        answer: LiveReply,
    ) -> None:
        batch.push(reply, codes)
        if any(one is reply for one in batch.ready):
            self._waiting[reply] = _Rendering(batch, due, answer)
        else:  # they settle nothing yet
            settle(answer, Done(_joined([]), 0.0))

    def forget(self, reply: Any) -> None:
        """It is closed, and gets no more sound."""
        self._waiting.pop(reply, None)

    def step(self) -> None:
        """One step of every batch that somebody waits for."""
        for batch in {id(one.batch): one.batch for one in self._waiting.values()}.values():
            self._step(batch)

    def give_up(self, error: Exception) -> None:
        for one in self._waiting.values():
            settle(one.answer, error)
        self._waiting.clear()

    def _step(self, batch: DecoderBatchLike) -> None:
        mine = {reply: one for reply, one in self._waiting.items() if one.batch is batch}
        began = self._clock()
        try:
            sound = batch.step()
            still = set(map(id, batch.ready))
        except Exception as error:  # whose fault it was cannot be told: all of them end
            if not isinstance(error, MossliveError):  # a refusal is no failure
                self._health.failed("rendering", error)
            for reply, one in mine.items():
                del self._waiting[reply]
                settle(one.answer, error)
                batch.cancel(reply)
            return
        self._health.succeeded("rendering")
        cost_s = self._clock() - began
        for reply, one in mine.items():
            if reply in sound:
                one.pieces.append(sound[reply])
                one.cost_s += cost_s
            if id(reply) not in still:
                del self._waiting[reply]
                settle(one.answer, Done(_joined(one.pieces), one.cost_s))


def _joined(pieces: list[Samples]) -> Samples:
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.float32)
