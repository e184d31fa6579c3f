"""`mosslive inspect`: contents of a model folder, and whether it is usable."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mosslive.cli.console import advance, byte_progress, err, out, print_json
from mosslive.cli.inspect_engine import engine_report
from mosslive.cli.models import local
from mosslive.config.folders import CODEC_FOLDER, named_folder

if TYPE_CHECKING:
    from mosslive.checkpoint import Inventory

_COUNTS = ("tensors", "parameters", "bytes")


def inspect(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Read this model, engine, codec or BigVGAN folder, or repo id."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    values: Annotated[
        bool, typer.Option(help="Read every value and find NaN and infinities.")
    ] = True,
) -> None:
    """Print the contents of a model folder: blocks, tensors, parameters, bytes, verdict.

    Lists all faults and exits with status 1 if the folder is unusable.
    """
    report = folder_report(named_folder(local(folder)), values)
    if as_json:
        print_json(report)
    else:
        show_report(report)
    if not report["usable"]:
        raise typer.Exit(1)


def folder_report(folder: Path, values: bool) -> dict[str, Any]:
    from mosslive.checkpoint import scan_values, take_inventory
    from mosslive.checkpoint.capabilities import folder_capabilities
    from mosslive.checkpoint.engine_folder import is_engine
    from mosslive.checkpoint.generation import folder_sampling
    from mosslive.checkpoint.layout import CAPABILITIES_FILE, GENERATION_FILE, TOKENIZER_FILE
    from mosslive.codec.inventory import is_bigvgan, is_codec
    from mosslive.config import ConfigError
    from mosslive.rows import TextTokenizer, TokenizerError

    if is_engine(folder):
        return engine_report(folder, values)
    if is_codec(folder) or is_bigvgan(folder):
        return _codec_report(folder)
    inventory = take_inventory(folder)
    codec = _codec_report(folder / CODEC_FOLDER) if is_codec(folder / CODEC_FOLDER) else None
    if values:
        total = sum(entry.data_bytes for entry in inventory.entries.values())
        with byte_progress("reading values", total) as progress:
            scan_values(inventory, lambda count: advance(progress, count))
    report = _lm_report(inventory, values)
    try:
        TextTokenizer.from_file(inventory.folder / TOKENIZER_FILE).check(inventory.config)
    except TokenizerError as error:
        _add_fault(report, TOKENIZER_FILE, error)
    try:
        report["sampling"] = vars(folder_sampling(folder))
    except ConfigError as error:
        _add_fault(report, GENERATION_FILE, error)
    try:
        report["capabilities"] = vars(folder_capabilities(folder))
    except ConfigError as error:
        _add_fault(report, CAPABILITIES_FILE, error)
    return report if codec is None else _joined(folder, report, codec)


def _add_fault(report: dict[str, Any], file: str, error: Exception) -> None:
    fault = {"kind": type(error).__name__, "names": [file], "message": str(error)}
    report["faults"].append(fault)
    report["usable"] = False


def _joined(folder: Path, lm: dict[str, Any], codec: dict[str, Any]) -> dict[str, Any]:
    """The report of a model folder: blocks of its language model, codec and voices."""
    parts = {name: lm[name] + codec[name] for name in ("blocks", "faults", *_COUNTS)}
    lm.pop("expected_tensors")  # unknown for a codec, whose sizes come from its tensors
    return lm | parts | {"folder": str(folder), "usable": lm["usable"] and codec["usable"]}


def _codec_report(folder: Path) -> dict[str, Any]:
    from mosslive.codec.inventory import inspect_bigvgan, inspect_codec, inspect_voices, is_codec

    parts = inspect_codec(folder) if is_codec(folder) else inspect_bigvgan(folder)
    if is_codec(folder):
        parts += inspect_voices(folder)
    rows = [vars(part) | {"verdict": "at fault" if part.fault else "ok"} for part in parts]
    return {
        "folder": str(folder),
        "blocks": rows,
        **{name: sum(row[name] for row in rows) for name in _COUNTS},
        "values_read": True,
        "faults": [{"message": f"{part.block}: {part.fault}"} for part in parts if part.fault],
        "usable": not any(part.fault for part in parts),
    }


def _lm_report(inventory: "Inventory", values: bool) -> dict[str, Any]:
    from mosslive.checkpoint.faults import NonFiniteValues
    from mosslive.checkpoint.layout import blocks, expected_tensors

    expected = expected_tensors(inventory.config)
    at_fault = {name for fault in inventory.found for name in fault.names}
    rows = []
    for block, names in blocks(inventory.config).items():
        held = [inventory.entries[name] for name in names if name in inventory.entries]
        bad = [name for name in names if name in at_fault or name not in inventory.entries]
        rows.append(
            {
                "block": block,
                "tensors": len(held),
                "expected_tensors": len(names),
                "parameters": sum(math.prod(entry.shape) for entry in held),
                "bytes": sum(entry.data_bytes for entry in held),
                "dtype": ", ".join(sorted({entry.dtype for entry in held})) or "-",
                "verdict": "ok" if not bad else f"{len(bad)} at fault",
            }
        )
    return {
        "folder": str(inventory.folder),
        "blocks": rows,
        "tensors": sum(row["tensors"] for row in rows),
        "expected_tensors": len(expected),
        "parameters": sum(row["parameters"] for row in rows),
        "bytes": sum(row["bytes"] for row in rows),
        "values_read": values and all(isinstance(f, NonFiniteValues) for f in inventory.found),
        "faults": [
            {"kind": type(fault).__name__, "names": fault.names, "message": fault.line()}
            for fault in inventory.found
        ],
        "usable": inventory.valid,
    }


def show_report(report: dict[str, Any]) -> None:
    table = Table(title=Text(report["folder"]), title_justify="left")
    table.add_column("block")
    for name in ("tensors", "parameters", "bytes"):
        table.add_column(name, justify="right")
    table.add_column("dtype")
    table.add_column("verdict")
    for row in report["blocks"]:
        style = None if row["verdict"] == "ok" else "red"
        cells = (row["block"], row["tensors"], row["parameters"], row["bytes"])
        table.add_row(*_cells(*cells), row["dtype"], row["verdict"], style=style)
    table.add_section()
    verdict = "usable" if report["usable"] else "not usable"
    total = ("total", report["tensors"], report["parameters"], report["bytes"])
    table.add_row(*_cells(*total), "", verdict, style="bold")
    out.print(table)
    if sampling := report.get("sampling"):
        stated = ", ".join(f"{name} {value}" for name, value in sampling.items())
        out.print(f"default sampling: {stated}")
    if capabilities := report.get("capabilities"):
        out.print(f"capabilities: {_capabilities(capabilities)}", soft_wrap=True)
    for fault in report["faults"]:
        err.print(fault["message"], style="red", markup=False)
    if report["usable"] and not report["values_read"]:
        err.print("The values were not read (--no-values); NaN and infinities would not be found.")


def _capabilities(stated: dict[str, Any]) -> str:
    rows = stated["context_rows"]
    return "; ".join(
        (
            "context not stated" if rows is None else f"context of {rows} rows",
            ", ".join(stated["modes"]),
            "languages " + (", ".join(stated["languages"]) or "not stated"),
            "any voice" if stated["voices"] else "one voice only",
            "good transcripts" if stated["transcripts"] else "no good transcripts",
        )
    )


def _cells(block: str, tensors: int, parameters: int, size: int) -> tuple[str, str, str, str]:
    return block, f"{tensors:,}", f"{parameters:,}", f"{size:,}"
