"""Groups of stages in processes of their own, watched until the run is over.

Knows processes and the clock, not what a stage does. Invariants: a group that dies takes no other
with it and gets one more try while there is time; nothing is waited for beyond the end, whoever
hangs; what went wrong is said, and told to the caller; no group outlives the caller.
"""

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Protocol

Group = tuple[str, ...]
_WORTHWHILE_S = 60.0  # with less time than that left, a second try ends before it has learned
_NAP_S = 0.2


class Target(Protocol):
    def __call__(self, stages: Group, again: bool) -> None: ...


def _run_attended(target: Target, stages: Group, again: bool) -> None:
    """A caller that is killed cannot end its processes, so they end themselves: else they would
    hold the GPU and write beside the run that follows."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with(sentinel: int) -> None:
        wait([sentinel])
        os._exit(1)  # carried files are whole at any moment

    threading.Thread(target=leave_with, args=(parent.sentinel,), daemon=True).start()
    target(stages, again)


def run_groups(
    groups: Sequence[Group],
    target: Target,
    left: Callable[[Group], Group],
    end: float,
    last: float,
) -> list[str]:
    """→ what failed. `target` must be picklable. `left`: what of a group is still to be done.
    `end`, `last`: of time.time(), when the run should be over and when it must be."""
    spawn = multiprocessing.get_context("spawn")

    def start(stages: Group, again: bool) -> multiprocessing.process.BaseProcess:
        process = spawn.Process(target=_run_attended, args=(target, stages, again))
        process.start()
        return process

    running = [(stages, start(stages, False), False) for stages in groups]
    failures: list[str] = []

    def failed(stages: Group, why: str) -> None:
        failures.append(f"{' and '.join(stages)}: {why}")
        print(json.dumps({"failed": failures[-1]}), flush=True)

    while running:
        still = []
        for stages, process, again in running:
            if process.is_alive():
                if time.time() < last:
                    still.append((stages, process, again))
                    continue
                process.kill()
                process.join()
                failed(stages, "did not end")
            elif process.exitcode:
                rest = left(stages)
                failed(rest or stages, f"exit status {process.exitcode}")
                if rest and not again and time.time() < end - _WORTHWHILE_S:
                    still.append((rest, start(rest, True), True))
        running = still
        if running:
            time.sleep(_NAP_S)
    return failures
