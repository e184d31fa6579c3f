"""`mosslive bench bundled`: runs the examination of the bundled model.

The examination is `recipes/bundled/exam`. It is part of the repository and not of the installed
package, so this command works in a source checkout only.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.console import advance, err, print_json, step_progress
from mosslive.cli.models import local
from mosslive.errors import MossliveError

_CHECKOUT = Path(__file__).parents[2]


class NoExamination(MossliveError):
    """The package runs outside a source checkout, so `recipes/bundled/exam` is missing."""


def bundled(
    exam: Annotated[
        Path, typer.Option(metavar="DIR", help="Read spoken questions and their answers from DIR.")
    ],
    model: Annotated[
        str, typer.Argument(help="Examine this folder with lm, codec and voices, or bundled.")
    ] = "bundled",
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="Run one part: answers, text, reference, hearing, codec, sampling, fp8, human, "
            "live or conversations; repeatable (default: all)."
        ),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option(min=1, help="Limit each set; figures from under 200 questions are marked."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Set the number of PyTorch threads.")
    ] = None,
    judges: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Read the files of `make judges` from DIR.")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every answer as a line of JSON.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only the JSON line.")] = False,
) -> None:
    """Examine the bundled model: ask held-out questions and judge the spoken answers.

    A speech recogniser decides whether an answer is right, and DNSMOS rates the sound. Prints each
    figure on standard error when it is ready. The last line of the output is JSON with all figures.
    Needs a source checkout, the extra eval and the judges: run `make judges`.
    """
    _find_examination(_CHECKOUT)
    from mosslive.bench.report import text_report
    from mosslive.bench.report_html import write_html
    from recipes.bundled.exam.fetch import JUDGES_FOLDER
    from recipes.bundled.exam.measure import PARTS, ExamSettings, line, measure_exam

    settings = ExamSettings(
        exam=exam,
        model=str(local(Path(model))),
        judges=judges or JUDGES_FOLDER,
        parts=tuple(part or PARTS),
        questions=questions,
        answers=answers,
        threads=threads,
    )
    result = measure_exam(
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


def _find_examination(checkout: Path) -> None:
    """Makes `recipes` importable. Raises `NoExamination` outside a source checkout."""
    if not (checkout / "recipes" / "bundled" / "exam" / "__init__.py").is_file():
        raise NoExamination(
            f"the examination is not part of the installed package ({checkout} has no "
            "recipes/bundled/exam): clone the repository and run the command there"
        )
    if str(checkout) not in sys.path:
        # Last, so that nothing in the checkout hides an installed package.
        sys.path.append(str(checkout))


@contextmanager
def _stage(label: str, total: int) -> Iterator[Callable[[int], None]]:
    with step_progress(label, total) as progress:
        yield lambda count: advance(progress, count)
