"""Shared output of the sub-commands: progress bars on stderr, JSON on stdout."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, ensure_ascii=False))


@contextmanager
def _bar(label: str, total: int, counter: ProgressColumn) -> Iterator[Progress]:
    """A progress bar. It disappears when done and is off if stderr is not a terminal."""
    columns = (TextColumn(label), BarColumn(), counter, TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        progress.add_task(label, total=total)
        yield progress


def byte_progress(label: str, total: int) -> AbstractContextManager[Progress]:
    return _bar(label, total, DownloadColumn())


def step_progress(label: str, total: int) -> AbstractContextManager[Progress]:
    return _bar(label, total, MofNCompleteColumn())


def advance(progress: Progress, count: int) -> None:
    progress.advance(progress.task_ids[0], count)
