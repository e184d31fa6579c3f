"""`mosslive bench bundled`: the bundled voice before its judges."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.console import advance, err, print_json, step_progress


def bundled(
    exam: Annotated[
        Path, typer.Option(metavar="DIR", help="The examination: questions, spoken, and answers.")
    ],
    model: Annotated[
        str, typer.Argument(help="A folder with lm, codec and voices; or bundled.")
    ] = "bundled",
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="answers, text, reference, hearing, codec, sampling, fp8, human or live; may be "
            "given again. Default: all."
        ),
    ] = None,
    questions: Annotated[
        int | None, typer.Option(min=1, help="Of each set, at most; under 200 is marked.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of PyTorch; fewer where others compute, too.")
    ] = None,
    judges: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where make judges has put them.")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every answer down, as JSON lines.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write a page.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Nothing but the JSON line.")] = False,
) -> None:
    """Held-out questions, spoken answers; a recogniser and a rating of speech decide.

    Rows appear on standard error as they come; the last line of the output is all of them as JSON.
    Needs the extra eval and the judges: make judges.
    """
    from mosslive.bench.bundled import PARTS, BundledSettings, line, measure_bundled
    from mosslive.bench.bundled_fetch import JUDGES_FOLDER
    from mosslive.bench.lm_report import text_report
    from mosslive.bench.report_html import write_html

    settings = BundledSettings(
        exam=exam,
        model=model,
        judges=judges or JUDGES_FOLDER,
        parts=tuple(part or PARTS),
        questions=questions,
        answers=answers,
        threads=threads,
    )
    result = measure_bundled(
        settings,
        seen=lambda f: err.print(f"{f.name}: {line(f)}", style="dim", markup=False, soft_wrap=True),
        stage=_stage,
    )
    table = result.as_table()
    if not json:
        print(text_report(table))
    print_json(result.document())
    if html:
        write_html(html, [table])
    if result.refused:
        raise typer.Exit(1)


@contextmanager
def _stage(label: str, total: int) -> Iterator[Callable[[int], None]]:
    with step_progress(label, total) as progress:
        yield lambda count: advance(progress, count)
