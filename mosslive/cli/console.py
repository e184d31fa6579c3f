"""What every sub-command shares: progress bars on standard error, JSON on standard output."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, ensure_ascii=False))


@contextmanager
def byte_progress(label: str, total: int) -> Iterator[Progress]:
    """A bar that counts bytes; it is gone when done, and absent where nobody watches."""
    columns = (TextColumn(label), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        progress.add_task(label, total=total)
        yield progress


def advance(progress: Progress, count: int) -> None:
    progress.advance(progress.task_ids[0], count)
