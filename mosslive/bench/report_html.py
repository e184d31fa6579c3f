"""Writes results as one self-contained HTML page: plots, tables and conditions.

The page has no scripts and makes no requests. Knows the fields of a result, not how they were
measured.
"""

from html import escape
from pathlib import Path

from mosslive.bench.report import BenchResult, BenchRow, described, tables
from mosslive.bench.svg import Bar, Line, Plot, bar_plot, line_plot

_COLOURS = {"bf16": 0, "fp8": 1, "fp32": 2}
_BASELINE_COLOUR = 3
_COLOUR_COUNT = 4  # in the style below

_STYLE = """
:root { --ink: #1b1f24; --soft: #66707a; --rule: #d9dee3; --page: #fff;
  --c0: #2563c9; --c1: #0e8a6b; --c2: #8a5a00; --c3: #b3382e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #9aa4ae; --rule: #343b42;
  --page: #15181b; --c0: #7aa7f0; --c1: #4cc3a0; --c2: #d9a441; --c3: #ef8378; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
code { overflow-wrap: anywhere; } .soft, dt { color: var(--soft); } dd { margin: 0 0 .5rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--rule);
  white-space: nowrap; font-variant-numeric: tabular-nums; }
svg { width: 100%; max-width: 640px; display: block; }
svg text { font-size: 12px; fill: var(--ink); } .grid { stroke: var(--rule); }
.line { fill: none; stroke-width: 2; } .mark { stroke: var(--ink); } .best { stroke: var(--ink);
  stroke-width: 2; stroke-dasharray: 2 2; }
.line.c0 { stroke: var(--c0); } .line.c1 { stroke: var(--c1); } .line.c2 { stroke: var(--c2); }
.line.c3 { stroke: var(--c3); }
.dot.c0, .bar.c0 { fill: var(--c0); } .dot.c1, .bar.c1 { fill: var(--c1); }
.dot.c2, .bar.c2 { fill: var(--c2); } .dot.c3, .bar.c3 { fill: var(--c3); }
.key { margin-right: 1.5rem; font-size: .85rem; } .key i { display: inline-block; width: 1.5rem;
  border-top: 3px solid; margin-right: .4rem; vertical-align: middle; }
.key .dashed { border-top-style: dashed; border-top-width: 2px; } .key .c0 { color: var(--c0); }
.key .c1 { color: var(--c1); } .key .c2 { color: var(--c2); } .key .c3 { color: var(--c3); }
"""


def write_html(path: Path, results: list[BenchResult]) -> None:
    path.write_text(html_page(results), encoding="utf-8")


def html_page(results: list[BenchResult]) -> str:
    body = "".join(_section(result) for result in results)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>mosslive benchmarks</title><style>{_STYLE}</style></head>"
        f"<body><h1>mosslive benchmarks</h1>{body}</body></html>\n"
    )


def _section(result: BenchResult) -> str:
    conditions = result.conditions
    versions = ", ".join(f"{name} {version}" for name, version in conditions.versions.items())
    where = f"{conditions.device}; {conditions.size}, {conditions.weights}; {conditions.date}"
    notes = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>"
        for name, text in described(result).items()
    )
    return (
        f"<h2>{escape(result.title)}</h2><p>{escape(where)}<br>"
        f'<span class="soft">{escape(versions)}</span><br><code>{escape(conditions.command)}</code>'
        f"</p>{_refused(result)}{_plots(result.rows)}{_own_plots(result.plots)}"
        f"{''.join(_table(*t) for t in tables(result))}<dl>{notes}</dl>"
    )


def _refused(result: BenchResult) -> str:
    return "".join(
        f"<p><strong>Not verified, so not timed:</strong> {escape(reason)}</p>"
        for reason in result.refused
    )


def _plots(rows: tuple[BenchRow, ...]) -> str:
    plots = []
    for axis, other in (("streams", "context"), ("context", "streams")):
        for fixed in sorted({getattr(row, other) for row in rows}):
            some = [row for row in rows if getattr(row, other) == fixed and row.floor_ms]
            if len({getattr(row, axis) for row in some}) > 1:
                title = f"Median time by {axis}, {other} {fixed}; dashed: the floor"
                plot = line_plot(_lines(some, axis), axis, "ms")
                plots.append(f"<h3>{escape(title)}</h3>{plot}")
    if rows:
        plots.append("<h3>Median, p10 to p90, and the floor (vertical mark)</h3>")
        plots.append(bar_plot([_bar(row) for row in rows], "ms"))
    return "".join(plots)


def _own_plots(plots: tuple[Plot, ...]) -> str:
    return "".join(
        f"<h3>{escape(plot.title)}</h3>{line_plot(list(plot.lines), plot.x_name, plot.y_name)}"
        for plot in plots
    )


def _lines(rows: list[BenchRow], axis: str) -> list[Line]:
    """Returns one line per measured row name and precision, and one floor per precision."""
    lines = []
    for colour, (what, precision) in enumerate({(r.what, r.precision): None for r in rows}):
        own = [row for row in rows if (row.what, row.precision) == (what, precision)]
        measured = [(float(getattr(row, axis)), row.times.median_ms) for row in own]
        lines.append(Line(f"{what}, {precision}", measured, colour % _COLOUR_COUNT))
        floor = f"floor, {precision}"
        if floor not in {line.name for line in lines}:
            floors = [(float(getattr(row, axis)), row.floor_ms or 0.0) for row in own]
            lines.append(Line(floor, floors, colour % _COLOUR_COUNT, dashed=True))
    return lines


def _bar(row: BenchRow) -> Bar:
    ours = row.floor_ms is not None
    name = f"{row.what if ours else row.form}, {row.precision}, {row.streams} × {row.context}"
    colour = _COLOURS.get(row.precision, 0) if ours else _BASELINE_COLOUR
    times = row.times
    return Bar(name, times.median_ms, (times.p10_ms, times.p90_ms), row.floor_ms, colour)


def _table(columns: list[str], lines: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'
