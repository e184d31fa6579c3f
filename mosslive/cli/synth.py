"""`mosslive synth`: a random checkpoint in the published layout."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.console import byte_progress


class SizeOption(StrEnum):
    nano = "nano"
    small = "small"
    full = "full"


def synth(
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="Where OUT/lm is written.")],
    size: Annotated[
        SizeOption, typer.Option(help="nano: 0.4 M parameters, small: 121 M, full: 9.1 B (18 GB).")
    ] = SizeOption.nano,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same files.")] = 0,
    vocab: Annotated[
        Path | None,
        typer.Option(help="A tiktoken ranks file (Qwen's, say) to take the vocabulary from."),
    ] = None,
) -> None:
    """Write a random model with the files, names and shapes of the published one.

    For tests, benchmarks and first steps: it runs like the real model and says nothing sensible.
    """
    from mosslive.checkpoint import synthesise

    with byte_progress("writing", 0) as progress:
        task = progress.task_ids[0]
        target = synthesise(
            folder,
            size.value,
            seed,
            vocab,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    print(f"wrote {target}")  # not through rich, which would fold a long path
