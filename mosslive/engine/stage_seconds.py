"""How long each stage of a conversation has used the device, since the start.

A part that knows it implements `StageClock`. The seconds are wall time of the stage's steps on the
thread that runs them, waiting for the device included. Stages of different threads overlap, so
their shares of the time may add up to more than 1. Read on any thread.
"""

from typing import Protocol, runtime_checkable


@runtime_checkable
class StageClock(Protocol):
    def stage_seconds(self) -> dict[str, float]:
        """By stage: prefill and decode of the language model; encode, render_first and render of
        the codec."""
        ...


def stage_seconds(*parts: object) -> dict[str, float]:
    """Of all parts that know theirs."""
    seconds: dict[str, float] = {}
    for part in parts:
        if isinstance(part, StageClock):
            for stage, spent_s in part.stage_seconds().items():
                seconds[stage] = seconds.get(stage, 0.0) + spent_s
    return seconds
