"""The result of a benchmark: rows, checks and the conditions under which they were measured.

Makes a plain-text table and a JSON document. Needs nothing beyond PyTorch. Does not know how the
numbers were measured.
"""

import datetime
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import torch

from mosslive.bench.ceilings import Ceilings
from mosslive.bench.lm.check import Check
from mosslive.bench.svg import Plot
from mosslive.bench.timing import Times
from mosslive.version import __version__


@dataclass(frozen=True)
class BenchRow:
    what: str
    form: str  # the implementation, such as "mosslive" or "transformers eager"
    precision: str
    streams: int
    context: int  # rows
    times: Times
    bytes_read: int | None = None  # lower bound
    floor_ms: float | None = None
    floor_by: str = ""  # "bytes" or "products"
    goal_ms: float | None = None

    @property
    def share(self) -> float | None:
        """The share of the best possible speed that was reached."""
        return None if self.floor_ms is None else self.floor_ms / self.times.median_ms

    @property
    def name(self) -> str:
        return f"{self.what}, {self.form}"


@dataclass(frozen=True)
class Conditions:
    command: str
    date: str
    device: str
    versions: dict[str, str]
    size: str
    weights: str
    notes: dict[str, str]


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    lines: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class BenchResult:
    title: str
    conditions: Conditions
    ceilings: Ceilings | None
    rows: tuple[BenchRow, ...]
    checks: tuple[Check, ...] = ()
    figures: dict[str, Any] | None = None  # values that are not times of repeated calls
    refused: tuple[str, ...] = ()  # reasons of rows that failed verification
    tables: tuple[Table, ...] = ()  # of another form than `rows`
    plots: tuple[Plot, ...] = ()  # of the same values, for the page only

    def document(self) -> dict[str, Any]:
        rows = [asdict(row) | {"share": row.share} for row in self.rows]
        document = asdict(self) | {"rows": rows}
        del document["plots"]
        return document


def conditions_of(
    command: str, device: str, size: str, weights: str, notes: dict[str, str]
) -> Conditions:
    names = ("torch", "triton", "transformers")
    versions = {"mosslive": __version__, "python": platform.python_version()}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    shown = platform.processor() or platform.machine()
    if device == "cuda":
        shown = torch.cuda.get_device_name()
        versions["cuda"] = torch.version.cuda or ""
    now = datetime.datetime.now(datetime.UTC)
    return Conditions(command, f"{now:%Y-%m-%d %H:%M} UTC", shown, versions, size, weights, notes)


def tables(result: BenchResult) -> list[tuple[list[str], list[list[str]]]]:
    """Returns (columns, lines) of each table, as text."""
    found = [(_ROW_COLUMNS, [_row_cells(row) for row in result.rows])]
    for table in result.tables:
        found.append((list(table.columns), [[*map(_figure, line)] for line in table.lines]))
    if result.checks:
        found.append((_CHECK_COLUMNS, [_check_cells(check) for check in result.checks]))
    if result.figures:
        figures = [[name, _figure(value)] for name, value in result.figures.items()]
        found.append((["what", "value"], figures))
    return [table for table in found if table[1]]


def text_report(result: BenchResult) -> str:
    conditions = result.conditions
    versions = ", ".join(f"{name} {version}" for name, version in conditions.versions.items())
    lines = [f"{result.title}; {conditions.size}, {conditions.weights}; {conditions.device}"]
    lines += [f"{conditions.date}; {versions}", f"$ {conditions.command}"]
    for columns, cells in tables(result):
        lines += ["", *_aligned([columns, *cells])]
    lines += ["", *(f"NOT VERIFIED, so not timed: {reason}" for reason in result.refused)]
    lines += [f"{name}: {text}" for name, text in described(result).items()]
    return "\n".join(lines)


def described(result: BenchResult) -> dict[str, str]:
    """Returns the conditions as named sentences."""
    if result.ceilings is None:
        return result.conditions.notes
    best = result.ceilings
    rates = (
        f"{best.read_bytes_per_s / 1e12:.2f} TB/s read, {best.bf16_flops / 1e12:.0f} TFLOP/s bf16"
    )
    if best.fp8_flops:
        rates += f", {best.fp8_flops / 1e12:.0f} float8"
    return {"ceilings, measured in this run": rates} | result.conditions.notes


_ROW_COLUMNS = ["what", "form", "precision", "streams", "context", "median", "p10-p90", "times"]
_ROW_COLUMNS += ["read", "floor", "of best", "goal"]
_CHECK_COLUMNS = ["verified", "precision", "head", "rows", "error", "rms", "cosine", "arg-max"]
_CHECK_COLUMNS += ["transformers bf16: error", "rms"]


def _row_cells(row: BenchRow) -> list[str]:
    times, goal = row.times, ""
    if row.goal_ms is not None:
        goal = f"<= {row.goal_ms:g}: {'met' if times.median_ms <= row.goal_ms else 'missed'}"
    return [
        *(row.what, row.form, row.precision, str(row.streams), str(row.context)),
        f"{times.median_ms:.3f} ms",
        f"{times.p10_ms:.3f}-{times.p90_ms:.3f}",
        str(times.count),
        "" if row.bytes_read is None else f"{row.bytes_read / 1e9:.2f} GB",
        "" if row.floor_ms is None else f"{row.floor_ms:.3f} ms",
        "" if row.share is None else f"{row.share:.0%}",
        goal,
    ]


def _check_cells(check: Check) -> list[str]:
    close, bar = check.closeness, check.yardstick
    return [
        *(check.what, check.precision, check.channel, str(check.rows)),
        *(f"{close.error:.1e}", f"{close.rms:.1e}", f"{close.cosine:.6f}", f"{close.argmax:.1%}"),
        *(f"{bar.error:.1e}", f"{bar.rms:.1e}"),
    ]


def _figure(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _aligned(lines: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return [
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines
    ]
