"""A process of socket callers: `python -m mosslive.bench.capacity.caller_process QUESTIONS`.

QUESTIONS is a file written by `questions.save`. Prints "ready", reads one job a line from standard
input, each a JSON object, and prints one JSON object a line when the callers of a job have hung up.
Ends with its input. All callers of the process share one event loop, so a
process gets few enough of them to be on time; `Outcome.late_s` says whether it was. Starts no model
and uses no GPU.
"""

import asyncio
import gc
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mosslive.bench.capacity import questions as stored
from mosslive.bench.capacity.caller import Caller
from mosslive.bench.capacity.line import TurnEnds
from mosslive.bench.capacity.load import Load
from mosslive.bench.capacity.outcome import Outcome
from mosslive.bench.capacity.questions import Frames
from mosslive.bench.capacity.socket_line import SocketLine

_AFTER_S = 90.0  # a call that does not end this long after the level is given up


@dataclass(frozen=True)
class Job:
    """The callers of one process in one level."""

    url: str
    key: str | None
    load: Load
    ends: TurnEnds
    callers: list[tuple[int, float]]  # number, and when it calls first
    starts_in_s: float
    until_s: float  # from the start on

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> "Job":
        raw: dict[str, Any] = json.loads(text)
        spans = {name: tuple(raw["load"][name]) for name in ("question_s", "reply_s")}
        load = Load(**raw["load"] | spans)
        return cls(**raw | {"load": load, "ends": TurnEnds(**raw["ends"])})


async def run_callers(
    callers: list[Caller], firsts: list[float], began: float, until_s: float
) -> Outcome:
    """Runs callers side by side until all have hung up."""
    together = Outcome()
    runs = [
        caller.run(began, first_s, until_s) for caller, first_s in zip(callers, firsts, strict=True)
    ]
    try:
        async with asyncio.timeout(began + until_s + _AFTER_S - time.monotonic()):
            await asyncio.gather(*runs)
    except TimeoutError:
        together.faults.append(f"a call did not end within {_AFTER_S:g} s after the level")
    for caller in callers:
        together.add(caller.outcome)
    return together


async def _run(job: Job, frames: Frames) -> Outcome:
    began = time.monotonic() + job.starts_in_s
    lengths = [len(question) for question in frames.questions]

    def make_line() -> SocketLine:
        return SocketLine(job.url, frames, job.ends, job.key)

    callers = [Caller(number, job.load, make_line, lengths, job.ends) for number, _ in job.callers]
    return await run_callers(callers, [first for _, first in job.callers], began, job.until_s)


def main(questions: str) -> None:
    frames = Frames.of(stored.load_file(Path(questions)))
    gc.collect()
    gc.freeze()  # pauses of the collector would make callers late
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(asyncio.run(_run(Job.read(line), frames)).document()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
