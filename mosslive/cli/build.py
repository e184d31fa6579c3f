"""`mosslive build`: builds an engine folder from a published checkpoint."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal
from rich.table import Table

from mosslive.cli.console import err, out, print_json
from mosslive.cli.models import DeviceOption, device_of, local, stage
from mosslive.cli.verify import verdict_table
from mosslive.config import Sampling

if TYPE_CHECKING:
    from mosslive.build import Built, Fp8Report
    from mosslive.build.builder import MakeReplies
    from mosslive.rows import Row, TextTokenizer


class Fp8Option(StrEnum):
    trunk = "trunk"


class DtypeOption(StrEnum):
    bfloat16 = "bfloat16"
    float32 = "float32"


def build(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="LM_DIR", help="Read this language model: a folder, its parent, or a repo id."
        ),
    ],
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="Write this engine folder.")],
    fp8: Annotated[
        Fp8Option | None, typer.Option(help="Store the trunk's matrices as float8 e4m3.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Measure fp8 on these JSON lines of rows or turns (default: synthetic).",
        ),
    ] = None,
    sequences: Annotated[int, typer.Option(min=1, help="Use at most this many sequences.")] = 500,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Keep a matrix or layer out of fp8: trunk.3.down, trunk.3, '*.down'."),
    ] = None,
    keep_below: Annotated[
        float | None,
        typer.Option(metavar="DB", help="Keep matrices below this signal-to-noise ratio."),
    ] = None,
    replies: Annotated[
        int, typer.Option(min=0, help="Generate this many replies and count those that never end.")
    ] = 16,
    reply_rows: Annotated[
        int, typer.Option(min=1, help="Limit these replies; 12.5 rows = 1 s.")
    ] = 250,
    dtype: Annotated[
        DtypeOption | None,
        typer.Option(help="Set the dtype outside fp8 (default: the checkpoint's)."),
    ] = None,
    device: DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Build an engine folder: fuse, optionally quantise, and verify a checkpoint.

    Writes OUT only if the engine reproduces the logits of its source; else exits with status 1.
    """
    if fp8 is None and (calibration or keep or keep_below is not None):
        raise typer.BadParameter("--calibration, --keep and --keep-below need --fp8 trunk")

    from mosslive.build import Fp8Options, Keep, build_engine
    from mosslive.engine.read import read_device

    options = Fp8Options(
        keep=Keep(tuple(keep or ()), keep_below),
        calibration=calibration,
        sequences=sequences,
        replies=replies,
    )
    built = build_engine(
        local(model),
        folder,
        read_device(device_of(device)),
        dtype=dtype.value if dtype else None,
        fp8=options if fp8 else None,
        make_replies=free_running_replies(reply_rows),
        stage=stage,
    )
    if as_json:
        print_json(_document(built))
    else:
        if built.report:
            _show(built.report)
        out.print(verdict_table(built.verdict))
        err.print(f"wrote {built.folder}: {decimal(built.weight_bytes)} of weights", markup=False)


def _document(built: "Built") -> dict[str, Any]:
    return {
        "folder": str(built.folder),
        "weight_bytes": built.weight_bytes,
        "fp8": built.report.to_dict() if built.report else None,
        "verdict": built.verdict.to_dict(),
    }


def free_running_replies(rows: int = 250) -> "MakeReplies":
    """Greedy replies of at most so many rows, for the report on fp8."""
    from mosslive.cache import PagePool
    from mosslive.engine import LanguageModel
    from mosslive.engine.runner import Runner
    from mosslive.model import Decoder

    sampling = Sampling(greedy=True, max_new=rows)

    def replies(
        tokenizer: "TextTokenizer", decoder: Decoder, prompts: list[list["Row"]]
    ) -> list[list["Row"]]:
        page_size = 16
        pages = sum(-(-(len(rows) + sampling.max_new) // page_size) for rows in prompts)
        runner = Runner(decoder, PagePool(pages, page_size), chunk=512)
        lm = LanguageModel(runner, tokenizer)
        requests, rows = lm.generate_many([(prompt, sampling) for prompt in prompts])
        for _ in rows:
            pass
        return [request.new_rows for request in requests]

    return replies


def _show(report: "Fp8Report") -> None:
    table = Table("layer", caption_justify="left")
    fields = list(dict.fromkeys(name.rpartition(".")[2] for name in report.snr_db))
    for field in fields:
        table.add_column(field, justify="right")
    for layer in dict.fromkeys(name.rpartition(".")[0] for name in report.snr_db):
        cells = [_ratio(report, f"{layer}.{field}") for field in fields]
        table.add_row(layer, *cells)
    if report.kept:
        table.caption = "* not fp8"
    out.print(
        f"fp8 on {report.sequences} sequences, {report.rows:,} rows. Signal-to-noise ratio of each "
        f"product in dB, with the inputs of the unquantised model:"
    )
    out.print(table)
    heads = Table("head", title="fp8 compared with unquantised, same rows", title_justify="left")
    for name in ("rows", "mean cosine", "worst cosine", "same arg-max"):
        heads.add_column(name, justify="right")
    for head, found in report.heads.items():
        shares = f"{found.cosine_mean:.6f}", f"{found.cosine_worst:.6f}"
        heads.add_row(head, f"{found.rows:,}", *shares, f"{found.argmax_agreement:.2%}")
    out.print(heads)
    if report.free_running:
        run = report.free_running
        out.print(
            f"replies without an end: {run.runaways_before} of {run.replies} unquantised, "
            f"{run.runaways_fp8} with fp8, {run.new_runaways} of them new"
        )


def _ratio(report: "Fp8Report", name: str) -> str:
    return f"{report.snr_db[name]:.1f}" + ("*" if name in report.kept else "")
