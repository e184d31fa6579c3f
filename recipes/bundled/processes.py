"""Runs groups of stages in processes and watches them until the run is over.

Knows processes and the clock, not what a stage does. Invariants: a group that fails ends no other
group and gets one more try while there is time; the run does not wait beyond its end, even if a
process hangs; failures are printed and returned; no group outlives the caller.
"""

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

Group = tuple[str, ...]
_WORTHWHILE_S = 60.0  # a second try with less time is not worth it
_NAP_S = 0.2


class Target(Protocol):
    def __call__(self, stages: Group, retry: bool) -> None: ...


def leave_with_parent() -> None:
    """Call at the start of a process. Ends it when its parent is killed: otherwise it would hold
    the GPU and write at the same time as the next run."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave() -> None:
        parent.join()
        os._exit(1)  # files appear only when complete, so nothing needs cleaning up

    threading.Thread(target=leave, daemon=True).start()


def _run_attended(target: Target, stages: Group, retry: bool) -> None:
    leave_with_parent()
    target(stages, retry)


def run_groups(
    groups: Sequence[Group],
    target: Target,
    left: Callable[[Group], Group],
    end: float,
    last: float,
) -> list[str]:
    """Returns what failed. `target` must be picklable. `left` returns the unfinished stages of a
    group. `end` and `last`, of time.time(): when the run should be over and when it must be."""
    spawn = multiprocessing.get_context("spawn")

    def start(stages: Group, retry: bool) -> multiprocessing.process.BaseProcess:
        process = spawn.Process(target=_run_attended, args=(target, stages, retry))
        process.start()
        return process

    running: list[tuple[Group, multiprocessing.process.BaseProcess, bool]] = []
    failures: list[str] = []

    def failed(stages: Group, why: str) -> None:
        failures.append(f"{' and '.join(stages)}: {why}")
        print(json.dumps({"failed": failures[-1]}), flush=True)

    try:
        for stages in groups:
            running.append((stages, start(stages, False), False))
        while running:
            for one in list(running):
                stages, process, retry = one
                if process.is_alive():
                    if time.time() < last:
                        continue
                    process.kill()
                    process.join()
                    failed(stages, "did not end")
                elif process.exitcode:
                    rest = left(stages)
                    failed(rest or stages, f"exit status {process.exitcode}")
                    if rest and not retry and time.time() < end - _WORTHWHILE_S:
                        running.append((rest, start(rest, True), True))
                running.remove(one)
            if running:
                time.sleep(_NAP_S)
    finally:  # otherwise an interrupt would wait for the whole training
        for _, process, _ in running:
            process.kill()
            process.join()
    return failures
