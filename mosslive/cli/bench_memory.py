"""`mosslive bench memory`: how many conversations fit into a GPU's memory, by arithmetic."""

from typing import Annotated

import typer
from rich.table import Table

from mosslive.cli.console import out, print_json
from mosslive.config import SECONDS_PER_CODE


def memory(
    rows: Annotated[
        str, typer.Option(help="Give each conversation this many rows; 12.5 rows = 1 s.")
    ] = "2048,10240",
    reply_s: Annotated[
        float, typer.Option(min=1, help="Let replies be this many seconds long.")
    ] = 20.0,
    json: Annotated[bool, typer.Option("--json", help="Print only the JSON line.")] = False,
) -> None:
    """Compute how many conversations of MOSS-Speech fit into GPUs of 24, 48, 80 and 141 GB.

    Arithmetic on the sizes of the published model, by the server's own plan of the memory: nothing
    is measured, and no GPU is needed. Whether a GPU is fast enough for so many conversations, bench
    capacity shows. The last line of the output is JSON.
    """
    from mosslive.bench.subject import numbers
    from mosslive.server.hardware import USABLE_GIB, Talk, conversations, published_sizes

    sizes = published_sizes()
    lengths = numbers("rows", rows, 16)
    found = [
        {
            "gpu_gb": gb,
            "usable_gib": gib,
            "precision": precision,
            "rows": length,
            "conversations": conversations(sizes, precision, gib, Talk(length, reply_s)),
        }
        for gb, gib in USABLE_GIB.items()
        for precision in ("bf16", "fp8")
        for length in lengths
    ]
    if not json:
        table = Table("GPU", "usable", "language model")
        for length in lengths:
            table.add_column(f"{length} rows ({length * SECONDS_PER_CODE:.0f} s)", justify="right")
        for first in range(0, len(found), len(lengths)):
            row, counts = found[first], found[first : first + len(lengths)]
            cells = (str(one["conversations"]) for one in counts)
            card = (f"{row['gpu_gb']} GB", f"{row['usable_gib']:.0f} GiB")
            table.add_row(*card, str(row["precision"]), *cells)
        out.print(table)
        out.print(
            f"Conversations that fit, none of them shortened, with replies of up to {reply_s:g} s. "
            f"Arithmetic from memory alone."
        )
    print_json({"reply_s": reply_s, "fits": found})
