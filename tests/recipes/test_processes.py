"""Processes of a run: the effect of one that fails or hangs on the others."""

import fcntl
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from recipes.bundled.processes import Group, leave_with_parent, run_groups


@dataclass(frozen=True)
class _Stages:
    """Writes a file for every stage it runs; the stages `dies` and `hangs` do what their names
    say."""

    folder: Path

    def __call__(self, stages: Group, retry: bool) -> None:
        for stage in stages:
            (self.folder / f"{stage}{' again' if retry else ''}").touch()
            if stage == "dies" and not retry:
                os._exit(3)
            if stage == "hangs":
                time.sleep(600)

    def left(self, stages: Group) -> Group:
        return tuple(
            stage for stage in stages if not (self.folder / stage).exists() or stage != "a"
        )


def test_one_that_dies_is_tried_again_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a failure the others continue, finished stages are not repeated, and the failure is
    reported."""
    stages, now = _Stages(tmp_path), time.time()
    groups = [("a", "dies"), ("b",)]
    failures = run_groups(groups, stages, stages.left, now + 500, now + 600)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "dies", "dies again", "b"}
    assert failures == ["dies: exit status 3"]
    assert failures[0] in capsys.readouterr().out


def test_no_process_is_awaited_beyond_the_end(tmp_path: Path) -> None:
    """A hanging process is ended at the limit; without time left there is no second try."""
    stages, now = _Stages(tmp_path), time.time()
    failures = run_groups([("hangs",), ("dies",)], stages, stages.left, now, now + 3)
    assert sorted(failures) == ["dies: exit status 3", "hangs: did not end"]
    assert time.time() < now + 60
    assert not (tmp_path / "dies again").exists()


def _hold(path: Path) -> bool:
    """Locks the file until this process ends; returns False if another holds it."""
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    return True


def _work_below(folder: Path) -> None:
    """Runs like a maker of examples that a stage starts."""
    leave_with_parent()
    assert _hold(folder / "lock below")
    (folder / "began below").touch()
    time.sleep(120)


@dataclass(frozen=True)
class _Holds:
    folder: Path

    def __call__(self, stages: Group, retry: bool) -> None:
        assert _hold(self.folder / "lock")
        spawn = multiprocessing.get_context("spawn")
        spawn.Process(target=_work_below, args=(self.folder,), daemon=True).start()
        time.sleep(120)

    def run(self) -> None:
        now = time.time()
        run_groups([("holds",)], self, lambda stages: stages, now + 600, now + 600)


def _becomes_true(said: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if said():
            return True
        time.sleep(0.05)
    return False


def test_nothing_outlives_a_run_that_is_killed(tmp_path: Path) -> None:
    """When a run is killed, its stages and their children end, so that they do not hold the GPU or
    write into the next run."""
    locks = [tmp_path / "lock", tmp_path / "lock below"]
    caller = multiprocessing.get_context("spawn").Process(target=_Holds(tmp_path).run)
    caller.start()
    try:
        assert _becomes_true((tmp_path / "began below").exists)
        assert not any(_hold(lock) for lock in locks)
    finally:
        caller.kill()
        caller.join()
    for lock in locks:
        assert _becomes_true(partial(_hold, lock)), lock


def test_a_run_that_is_interrupted_ends_its_stages(tmp_path: Path) -> None:
    """An interrupt ends the stages, so that the interpreter exits at once."""
    now, before = time.time(), set(multiprocessing.active_children())

    def interrupted(stages: Group) -> Group:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_groups([("hangs",), ("dies",)], _Stages(tmp_path), interrupted, now + 600, now + 600)
    assert set(multiprocessing.active_children()) <= before
